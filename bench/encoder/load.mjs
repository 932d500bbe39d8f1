// Loads an artifact in a fresh Node and tells time and peak memory.
//   node load.mjs <artifact> <sequences.json>
import { readFileSync } from "node:fs";
import { loadModel, packSequences } from "../../workers/src/index.node.js";

const [artifact, file] = process.argv.slice(2);
const sequence = JSON.parse(readFileSync(file, "utf8"))[0];

/** Anonymous memory in bytes: without the pages of Node's own executable. */
function anonymous() {
  const status = readFileSync("/proc/self/status", "utf8");
  return 1024 * Number(/RssAnon:\s+(\d+)/.exec(status)[1]);
}

const before = anonymous();
const start = performance.now();
let peak = 0;
const look = () => (peak = Math.max(peak, anonymous()));
const model = await loadModel(artifact, { onProgress: look });
look();
const loaded = performance.now();
await model.run(packSequences([sequence]));
const first = performance.now();
const { memoryBytes } = model.info;
await model.close();
console.log(
  JSON.stringify({
    load_ms: loaded - start,
    first_ms: first - start,
    peak_bytes: peak - before,
    memory: memoryBytes,
  }),
);
