// A decoder's bare steps: greedy texts alone and together, refused steps, a sequence whose
// cache is gone.
import { base64, failureOf } from "./files.js";

/** A stream of tokens whose blocks begin at `first`. */
function stream(prompt, first) {
  const table = Int32Array.from({ length: 6 }, (_, i) => first + i);
  return { tokens: [...prompt], done: 0, table };
}

/** The step that runs what every stream has not run yet; each one's last row is wanted. */
function stepOf(streams, sampling) {
  let firstToken = 0;
  const seqs = streams.map(({ tokens, done }) => {
    const row = { firstToken, numTokens: tokens.length - done, contextLen: done };
    firstToken += row.numTokens;
    return row;
  });
  return {
    tokenIds: streams.flatMap(({ tokens, done }) => tokens.slice(done)),
    seqs,
    blockTables: streams.map(({ table }) => table),
    wanted: seqs.map((row) => row.firstToken + row.numTokens - 1),
    sampling,
  };
}

async function generate(model, prompts, count) {
  const streams = prompts.map((prompt, i) => stream(prompt, 6 * i));
  for (let i = 0; i < count; i++) {
    const { sampled } = await model.run(
      stepOf(
        streams,
        streams.map(() => ({})),
      ),
    );
    streams.forEach((s, row) => {
      s.done = s.tokens.length;
      s.tokens.push(sampled.tokenIds[row]);
    });
  }
  return streams.map((s, i) => s.tokens.slice(prompts[i].length));
}

export async function main({ volery }, { artifact, threads, prompts, count }) {
  const load = (options) => volery.loadModel(artifact, { threads, kvBlocks: 24, ...options });
  const model = await load({ maxSeqs: 4 });
  const { limits, memoryBytes, goldens } = model.info;
  const together = await generate(model, prompts, count);
  const alone = [];
  for (const prompt of prompts) alone.push(...(await generate(model, [prompt], count)));

  const good = stepOf(
    prompts.map((prompt, i) => stream(prompt, 6 * i)),
    null,
  );
  const answer = async () => {
    const { output, rows, width, sampled } = await model.run(good);
    if (rows !== prompts.length || sampled !== null) throw new Error("not a row per prompt");
    return { width, bits: base64(output) };
  };
  const first = await answer();
  const refused = {};
  const bad = {
    "a block too far": { blockTables: good.blockTables.map((t) => t.map((b) => b + 20)) },
    "a table short of blocks": { blockTables: good.blockTables.map(() => []) },
    "rows wanted twice": { wanted: [0, 0] },
    "a row too few to sample": { sampling: [{}] },
    "a temperature below zero": { sampling: prompts.map(() => ({ temperature: -1 })) },
    "a copy onto itself": { copies: [3, 3] },
  };
  for (const [name, fields] of Object.entries(bad)) {
    refused[name] = await failureOf(model.run({ ...good, ...fields }));
    if ((await answer()).bits !== first.bits) throw new Error(`the step after '${name}' changed`);
  }
  const nothingWanted = await model.run({ ...good, wanted: [] });
  const busy = [model.run(good), model.run(good), model.run(good)];
  const bits = (await Promise.all(busy)).map(({ output }) => base64(output));
  await model.close();
  const options = {};
  for (const [name, value] of [
    ["kvBlocks", 4],
    ["kvBlocks", 0],
    ["kvBlocks", 1.5],
    ["kvFormat", "q8"],
    ["maxWanted", 0],
    ["maxTokens", 100],
  ]) {
    options[`${name} ${value}`] = await failureOf(load({ [name]: value }));
  }
  const half = await load({ kvFormat: "f16" });
  const halfCache = half.info.memoryBytes.cache;
  await half.close();
  return {
    limits,
    memoryBytes,
    goldens,
    together,
    alone,
    refused,
    options,
    halfCache,
    width: first.width,
    sameBits: bits.every((b) => b === first.bits),
    nothing: [nothingWanted.rows, nothingWanted.output.length, nothingWanted.statuses.length],
  };
}
