// What an application does with the package, told where the wasm files and the worker are.
import { loadModel, packSequences } from "volery";
import relaxed from "volery/wasm/volery-relaxed.wasm";
import relaxedThreads from "volery/wasm/volery-relaxed-threads.wasm";
import simd from "volery/wasm/volery-simd.wasm";
import simdThreads from "volery/wasm/volery-simd-threads.wasm";

const builds = { simd, relaxed, "simd-threads": simdThreads, "relaxed-threads": relaxedThreads };
const wasm = { url: (variant) => new URL(builds[variant], import.meta.url) };
const worker = new URL("./worker.js", import.meta.url);

export async function answer(artifact, sequences, threads) {
  const model = await loadModel(artifact, { threads, wasm, worker });
  const { output } = await model.run(packSequences(sequences));
  await model.close();
  const { pool, warnings, goldens, variant } = model.info;
  return { output: [...output], pool, warnings, goldens, variant, threads: model.info.threads };
}
