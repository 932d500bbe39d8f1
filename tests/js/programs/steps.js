// Bad steps are refused, and the good one after each is unharmed.
import { base64, failureOf } from "./files.js";

export async function main({ volery }, { artifact, threads, good, bad }) {
  const model = await volery.loadModel(artifact, { threads, maxTokens: 300, maxSeqs: 8 });
  const answer = async () => base64((await model.run(volery.packSequences(good))).output);
  const first = await answer();
  const failures = {};
  for (const [name, step] of Object.entries(bad)) {
    failures[name] = await failureOf(model.run(step));
    if ((await answer()) !== first) throw new Error(`the step after '${name}' changed`);
  }
  failures.threads = await failureOf(model.run(volery.packSequences(good), { threads: 0 }));
  await model.close();
  failures.closed = await failureOf(model.run(volery.packSequences(good)));
  return failures;
}
