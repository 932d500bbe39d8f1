// Loads an artifact in a fresh Node and tells time and peak memory.
//   node load.mjs <artifact> <sequences.json>
import { readFileSync } from "node:fs";
import { loadModel, packSequences } from "../../workers/src/index.node.js";

const [artifact, file] = process.argv.slice(2);
const sequence = JSON.parse(readFileSync(file, "utf8"))[0];
const before = process.memoryUsage().rss;
const start = performance.now();
const model = await loadModel(artifact);
const loaded = performance.now();
// maxRSS is in kilobytes.
const peak = process.resourceUsage().maxRSS * 1024;
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
