// onnxruntime-web's wasm on one thread, at its best batch size.
//   node ort_web.mjs <model.onnx> <sequences.json>
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-web";
import { serve, timed } from "./serve.mjs";

const [model, file] = process.argv.slice(2);
const sequences = JSON.parse(readFileSync(file, "utf8"));
const BATCH_SIZES = [1, 4, 8, 16];

ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(model)), {
  executionProviders: ["wasm"],
});

/** Batches of texts of like length, padded to the longest. */
function batches(texts, size) {
  const order = [...texts].sort((a, b) => a.length - b.length);
  const result = [];
  for (let at = 0; at < order.length; at += size) {
    const rows = order.slice(at, at + size);
    const longest = Math.max(...rows.map((row) => row.length));
    const fill = (value) =>
      new ort.Tensor(
        "int64",
        BigInt64Array.from(
          rows.flatMap((row) => Array.from({ length: longest }, (_, i) => value(row, i))),
        ),
        [rows.length, longest],
      );
    const feeds = {
      input_ids: fill((row, i) => BigInt(row[i] ?? 0)),
      attention_mask: fill((row, i) => (i < row.length ? 1n : 0n)),
      token_type_ids: fill(() => 0n),
    };
    const named = Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));
    result.push({ lengths: rows.map((row) => row.length), longest, feeds: named });
  }
  return result;
}

/** Mean pooling and normalization, as the model's pipeline has them. */
async function embed({ lengths, longest, feeds }) {
  const hidden = Object.values(await session.run(feeds))[0];
  const width = hidden.dims[2];
  return lengths.map((length, row) => {
    const mean = new Float32Array(width);
    for (let t = 0; t < length; t++) {
      const at = (row * longest + t) * width;
      for (let c = 0; c < width; c++) mean[c] += hidden.data[at + c];
    }
    const norm = Math.hypot(...mean);
    return mean.map((x) => x / norm);
  });
}

const run = async (plan) => {
  for (const batch of plan) await embed(batch);
};
// Its speed per batch size, on a sample that has every length.
const sample = [...sequences].sort((a, b) => a.length - b.length).filter((_, i) => i % 8 === 0);
let best = { size: 0, cpu_s: Infinity };
for (const size of BATCH_SIZES) {
  const plan = batches(sample, size);
  await run(plan.slice(-1));
  const { cpu_s } = await timed(() => run(plan));
  if (cpu_s < best.cpu_s) best = { size, cpu_s };
}
const [first] = await embed(batches(sequences.slice(0, 1), 1)[0]);
const plan = batches(sequences, best.size);
await serve({ batch: `${best.size} texts`, first: [...first] }, () => run(plan));
