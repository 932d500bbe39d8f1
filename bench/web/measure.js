/** What `python -m bench.web` asks this page to measure. Times are milliseconds. */
import { load } from "volery";

/** From navigation to the first vector, and the parts of it. */
async function firstEmbedding(artifact) {
  const imported = performance.now();
  const model = await load(artifact);
  const loaded = performance.now();
  const vector = await model.embed("How do birds find their way in the dark?");
  const total = performance.now();
  await model.close();
  return {
    scripts: imported,
    load: loaded - imported,
    embed: total - loaded,
    total,
    width: vector.length,
  };
}

/** Tokens a second of `count` streams, one after another and all at once, in turns. */
async function streams(artifact, { count, tokens, rounds }) {
  const model = await load(artifact, { threads: 1 });
  const generate = (i) =>
    model
      .generate(`Bird number ${i} in the book is`, { maxTokens: tokens, ignoreEos: true })
      .result();
  const all = Array.from({ length: count }, (_, i) => i);
  await Promise.all(all.slice(0, 2).map(generate)); // warms up
  const found = { alone: [], together: [], equal: true, batch: 0 };
  for (let round = 0; round < rounds; round++) {
    const alone = [];
    const start = performance.now();
    for (const i of all) alone.push(await generate(i));
    const between = performance.now();
    const together = await Promise.all(all.map(generate));
    const end = performance.now();
    const made = 1000 * count * tokens;
    found.alone.push(made / (between - start));
    found.together.push(made / (end - between));
    found.equal &&= together.every(({ text }, i) => text === alone[i].text);
    found.batch = Math.max(...together.map(({ batchSeqs }) => batchSeqs));
  }
  await model.close();
  return found;
}

globalThis.measure = { firstEmbedding, streams };
