// Loads with each kind of pool; several steps at once give the same bytes.
import { base64 } from "./files.js";

export async function main({ volery }, { artifact, sequences, loads }) {
  const results = [];
  for (const [threads, pool] of loads) {
    const model = await volery.loadModel(artifact, { threads, pool: pool ?? undefined });
    const step = volery.packSequences(sequences);
    const running = Array.from({ length: 5 }, () => model.run(step));
    const outputs = (await Promise.all(running)).map((result) => base64(result.output));
    await model.close();
    const { pool: kind, concurrency, memoryBytes, warnings } = model.info;
    const info = { pool: kind, concurrency, memoryBytes, warnings };
    results.push({ ...info, threads: model.info.threads, outputs });
  }
  return results;
}
