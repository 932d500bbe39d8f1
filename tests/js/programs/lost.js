// A pool thread dies in the middle of steps (Node).
import { failureOf } from "./files.js";

export async function main({ volery }, { artifact, sequences }) {
  const workers = [];
  process.on("worker", (worker) => workers.push(worker));
  const model = await volery.loadModel(artifact, { threads: 2 });
  const step = volery.packSequences(sequences);
  const running = Array.from({ length: 50 }, () => failureOf(model.run(step)));
  await workers[0].terminate();
  const failures = await Promise.all(running);
  const later = await failureOf(model.run(step));
  await model.close();
  return { failures, later, workers: workers.length };
}
