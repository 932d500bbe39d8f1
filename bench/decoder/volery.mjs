// Volery in Node: bare steps on one thread, without an engine above.
//   node volery.mjs <artifact> <workload.json>
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { loadModel } from "../../workers/src/index.node.js";
import { timed } from "../encoder/serve.mjs";

const BLOCK = 32;
const [artifact, file] = process.argv.slice(2);
const { long, streams: prompts, chunk, workloads } = JSON.parse(readFileSync(file, "utf8"));

const model = await loadModel(artifact, {
  maxTokens: chunk,
  maxSeqs: prompts.length,
  kvBlocks: 64,
});

/** Streams with the prompts given, nothing of which is in the cache. */
function start(texts) {
  let next = 0;
  return texts.map((text) => ({
    tokens: [...text],
    done: 0,
    table: Int32Array.from({ length: Math.ceil((text.length + 64) / BLOCK) }, () => next++),
  }));
}

/** Run the next tokens of every stream, at most a chunk in all; greedy tokens join. */
async function step(streams) {
  const seqs = [];
  const tokenIds = [];
  const wanted = [];
  const takers = [];
  for (const stream of streams) {
    const part = stream.tokens.slice(stream.done, stream.done + chunk);
    seqs.push({ firstToken: tokenIds.length, numTokens: part.length, contextLen: stream.done });
    tokenIds.push(...part);
    stream.done += part.length;
    if (stream.done === stream.tokens.length) {
      wanted.push(tokenIds.length - 1);
      takers.push(stream);
    }
  }
  const blockTables = streams.map((stream) => stream.table);
  const sampling = wanted.map(() => ({}));
  const { sampled } = await model.run({ tokenIds, seqs, blockTables, wanted, sampling });
  takers.forEach((stream, i) => stream.tokens.push(sampled.tokenIds[i]));
}

async function prefill(streams) {
  for (const stream of streams) {
    const end = stream.tokens.length;
    while (stream.done < end) await step([stream]);
  }
}

async function decode(streams, count) {
  for (let i = 0; i < count; i++) await step(streams);
}

/** The answer to a workload: its time, and the tokens that it generated. */
async function measure({ prompt, streams: count, together, tokens }) {
  if (prompt > 0) {
    const streams = start([long.slice(0, prompt)]);
    return { ...(await timed(() => prefill(streams))), ids: [streams[0].tokens.slice(prompt)] };
  }
  const streams = start(prompts.slice(0, count));
  await prefill(streams);
  const times = await timed(async () => {
    if (together) await decode(streams, tokens - 1);
    else for (const stream of streams) await decode([stream], tokens - 1);
  });
  return { ...times, ids: streams.map((s, i) => s.tokens.slice(prompts[i].length)) };
}

console.log(JSON.stringify({ ready: { variant: model.info.variant } }));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await measure(workloads[JSON.parse(line).run])));
}
await model.close();
