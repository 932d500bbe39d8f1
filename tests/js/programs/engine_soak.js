// Loads, uses and closes an engine again and again, with aborts at random; what memory it
// holds in between, and what is left at the end (Node, with --expose-gc).
export async function main({ volery }, { embedder, decoder, cycles, calls }) {
  let workers = 0;
  process.on("worker", (worker) => {
    workers += 1;
    worker.on("exit", () => (workers -= 1));
  });
  let state = 1;
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  const heaps = [];
  let finished = 0;
  for (let cycle = 0; cycle < cycles; cycle++) {
    const words = await volery.load(embedder, { threads: 2 });
    const story = await volery.load(decoder);
    const running = [];
    for (let i = 0; i < calls; i++) {
      const controller = new AbortController();
      const { signal } = controller;
      const options = { maxTokens: 1 + random(9), temperature: 1, seed: i, signal };
      running.push(
        i % 8 === 0
          ? story.generate("once upon a time ".slice(random(9)), options).result()
          : words.embed("some words".slice(random(9)), { signal }),
      );
      running.at(-1).catch(() => {}); // looked at later
      if (random(4) === 0) queueMicrotask(() => controller.abort());
      if (random(6) === 0) await running[random(running.length)].catch(() => {});
    }
    const ends = await Promise.allSettled(running);
    finished += ends.filter((end) => end.status === "fulfilled").length;
    for (const end of ends) {
      if (end.status === "rejected" && end.reason.name !== "Aborted") throw end.reason;
    }
    await Promise.all([words.close(), story.close()]);
    await new Promise((resolve) => setImmediate(resolve));
    globalThis.gc();
    heaps.push(process.memoryUsage().heapUsed);
  }
  return { heaps, finished, workers };
}
