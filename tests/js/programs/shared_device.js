// Two models on one device: their work is scheduled together, and closed apart.
export async function main({ volery }, { embedder, decoder }) {
  const lines = [];
  const device = new volery.Device({ recorder: new volery.TraceRecorder((l) => lines.push(l)) });
  const words = await volery.load(embedder, { device, share: 2 });
  const text = await volery.load(decoder, { device });
  const late = async () => volery.load(embedder, { device }).then(() => "loaded");
  const story = text.generate("once", { maxTokens: 20, ignoreEos: true }).result();
  const vectors = await Promise.all(Array.from({ length: 10 }, (_, i) => words.embed(`text ${i}`)));
  const refused = await late().catch((error) => error.name);
  const own = await volery
    .load(embedder, { device, threads: 7 })
    .catch((error) => `${error.name}: ${error.message}`);
  await words.close();
  const { completions } = await story;
  await device.close();
  const closed = await words.embed("late").catch((error) => error.name);
  return {
    vectors: vectors.length,
    tokens: completions[0].tokenIds.length,
    refused,
    own,
    closed,
    lanes: JSON.parse(lines[0]).lanes.map((lane) => lane.name),
    digest: volery.replayTrace(lines),
    lines,
  };
}
