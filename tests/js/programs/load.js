// Loads an artifact and runs sequences as one step, once per number of threads.
import { base64 } from "./files.js";

export async function main({ volery }, { artifact, options, sequences }) {
  const progress = [];
  const onProgress = (event) => progress.push(event);
  const model = await volery.loadModel(artifact, { ...options, onProgress });
  const outputs = [];
  for (let threads = 1; threads <= model.info.threads; threads++) {
    const result = await model.run(volery.packSequences(sequences), { threads });
    outputs.push(base64(result.output));
  }
  const goldens = await model.runGoldens();
  await model.close();
  await model.close();
  const { variant, threads, warnings, memoryBytes, loadMs, limits } = model.info;
  return {
    info: { variant, threads, warnings, memoryBytes, loadMs, limits },
    goldens,
    outputs,
    progress: {
      rising: progress.every((p, i) => i === 0 || p.loadedBytes >= progress[i - 1].loadedBytes),
      last: progress.at(-1),
    },
  };
}
