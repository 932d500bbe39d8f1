// Generates from one prompt three times, the last time in a namespace of its own.
export async function main({ volery }, { artifact, prompt, maxTokens }) {
  const model = await volery.load(artifact);
  const results = [];
  for (const cacheSalt of ["", "", "other"]) {
    results.push(await model.generate(prompt, { maxTokens, cacheSalt }).result());
  }
  await model.close();
  return {
    texts: results.map((r) => r.text),
    cachedTokens: results.map((r) => r.usage.cachedTokens),
  };
}
