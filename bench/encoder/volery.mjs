// Volery in Node: packed steps of the corpus.
//   node volery.mjs <artifact> <sequences.json> <threads>
import { readFileSync } from "node:fs";
import { loadModel, packSequences } from "../../workers/src/index.node.js";
import { serve, timed } from "./serve.mjs";

const [artifact, file, threads] = process.argv.slice(2);
const sequences = JSON.parse(readFileSync(file, "utf8"));
const BUDGETS = [128, 256, 512, 1024];

const model = await loadModel(artifact, {
  threads: Number(threads),
  maxTokens: Math.max(...BUDGETS),
  maxSeqs: 256,
});

/** Steps of at most `budget` tokens, in the order of the corpus. */
function steps(texts, budget) {
  const packed = [[]];
  let tokens = 0;
  for (const ids of texts) {
    if (tokens + ids.length > budget && tokens > 0) {
      packed.push([]);
      tokens = 0;
    }
    packed.at(-1).push(ids);
    tokens += ids.length;
  }
  return packed.map(packSequences);
}

/** "together": each step on all threads. "side by side": a step on each thread. */
async function run(plan, mode) {
  if (mode === "side by side") {
    await Promise.all(plan.map((step) => model.run(step, { threads: 1 })));
  } else {
    for (const step of plan) await model.run(step);
  }
}

// The best budget, on a sample; the first pass only warms up.
const sample = sequences.filter((_, i) => i % 4 === 0);
let best = { budget: 0, cpu_s: Infinity };
await run(steps(sample, BUDGETS[0]), "together");
for (const budget of BUDGETS) {
  const { cpu_s } = await timed(() => run(steps(sample, budget), "together"));
  if (cpu_s < best.cpu_s) best = { budget, cpu_s };
}
const plan = steps(sequences, best.budget);
const { output } = await model.run(packSequences([sequences[0]]));
const { variant } = model.info;
const ready = { variant, batch: `${best.budget} tokens`, first: [...output] };
await serve(ready, (mode) => run(plan, mode));
await model.close();
