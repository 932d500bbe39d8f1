// M1: loads, runs and closes again and again; tells the memory after each cycle (Node).
export async function main({ volery }, { artifact, cycles, threads, pool, sequences }) {
  const rss = [];
  for (let i = 0; i < cycles; i++) {
    const model = await volery.loadModel(artifact, { threads, pool });
    await model.run(volery.packSequences(sequences));
    await model.close();
    globalThis.gc?.();
    rss.push(globalThis.process?.memoryUsage().rss ?? 0);
  }
  const live = globalThis.process?.getActiveResourcesInfo?.() ?? [];
  return { rss, workers: live.filter((kind) => /Worker|MessagePort/.test(kind)).length };
}
