// Steps submitted together give what each gives alone; closing ends what runs and refuses the rest.
import { base64, failureOf } from "./files.js";

export async function main({ volery }, { artifact, sequences }) {
  const model = await volery.loadModel(artifact, { threads: 2 });
  const steps = sequences.map((ids) => volery.packSequences([ids]));
  const alone = [];
  for (const step of steps) alone.push(base64((await model.run(step, { threads: 1 })).output));
  let equal = true;
  for (let round = 0; round < 20; round++) {
    const order = steps.map((_, i) => (i * 3 + round) % steps.length);
    const results = await Promise.all(
      order.map((i) => model.run(steps[i], { threads: 1 + ((i + round) % 2) })),
    );
    results.forEach((result, j) => (equal &&= base64(result.output) === alone[order[j]]));
  }
  const busy = steps.map((step) =>
    model.run(step, { threads: 1 }).then(
      () => null,
      (e) => e.name,
    ),
  );
  const closing = [model.close(), model.close()];
  const after = await failureOf(model.run(steps[0]));
  await Promise.all(closing);
  return { threads: model.info.threads, equal, busy: await Promise.all(busy), after: after.name };
}
