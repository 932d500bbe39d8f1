// Generates in concurrent calls; results, and the pieces of every stream.
export async function main({ volery }, { artifact, options, calls }) {
  const model = await volery.load(artifact, options);
  const results = await Promise.all(
    calls.map(async ({ prompt, messages, options: callOptions }) => {
      const stream = messages
        ? model.chat(messages, callOptions)
        : model.generate(prompt, callOptions);
      const pieces = [];
      for await (const piece of stream) pieces.push(piece);
      return { ...(await stream.result()), pieces };
    }),
  );
  const stats = model.stats();
  await model.close();
  const { maxContext, vocabSize } = model.info;
  return { results, stats, info: { maxContext, vocabSize } };
}
