// An application: what a user of the package writes for Vite, webpack and plain modules.
import { loadModel, packSequences } from "volery";

globalThis.run = async (artifact, sequences, threads) => {
  const model = await loadModel(artifact, { threads });
  const { output } = await model.run(packSequences(sequences));
  await model.close();
  const { pool, warnings, goldens, variant } = model.info;
  return { output: [...output], pool, warnings, goldens, variant, threads: model.info.threads };
};
