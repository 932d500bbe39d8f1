// Times one bench build of the wasm module and prints JSON. See __main__.py.
//   node bench.mjs <module.wasm> <plan>
// The plan is JSON: {"kernels": bool, "gemvs": bool, "models": [folder], "decoders": [folder]}
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [modulePath, planText] = process.argv.slice(2);
const plan = JSON.parse(planText);
const compiled = new WebAssembly.Module(readFileSync(modulePath));

/** Milliseconds of processor time: other processes on the machine do not count. */
function now() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** A fresh instance and its memory. */
function instantiate() {
  const memory = new WebAssembly.Memory({ initial: 64 });
  const env = { memory, now };
  return { memory, wasm: new WebAssembly.Instance(compiled, { env }).exports };
}

const KERNELS = ["bare_dot", "i8b32", "i4b32", "f32"];
const SECONDS = 6;

/** Fastest time of each micro-kernel. They take turns, so that a busy machine slows all. */
function kernels() {
  const { wasm } = instantiate();
  wasm.v_bench_prepare();
  const best = KERNELS.map(() => Infinity);
  for (const start = performance.now(); performance.now() - start < 1000 * SECONDS;) {
    for (let kernel = 0; kernel < KERNELS.length; kernel++) {
      const before = now();
      wasm.v_bench_kernel(kernel);
      best[kernel] = Math.min(best[kernel], now() - before);
    }
  }
  return Object.fromEntries(KERNELS.map((name, kernel) => [name, best[kernel]]));
}

/** [format, rows, bits of the activations]; format 0 only reads. */
const GEMVS = [
  [0, 1, 8],
  ...[1, 2, 3].flatMap((format) => [
    [format, 1, 8],
    [format, 2, 8],
    [format, 8, 8],
    [format, 1, 16],
  ]),
];
const GEMV_NAMES = ["read", "i4b32", "i8b32", "s8b32"];

/** Bytes per millisecond of the kernels for few rows, and of a loop that only reads. */
function gemvs() {
  const { wasm } = instantiate();
  wasm.v_bench_gemv_prepare();
  const best = GEMVS.map(() => 0);
  for (const start = performance.now(); performance.now() - start < 1000 * SECONDS;) {
    GEMVS.forEach(([format, rows, bits], i) => {
      const before = now();
      const bytes = wasm.v_bench_gemv(format, rows, bits === 16 ? 1 : 0) >>> 0;
      best[i] = Math.max(best[i], bytes / (now() - before));
    });
  }
  return GEMVS.map(([format, rows, bits], i) => [GEMV_NAMES[format], rows, bits, best[i]]);
}

/** Throws what a call of the module refused. */
function check(wasm, status) {
  if (status !== 0) throw new Error(`status ${status}: ${wasm.v_detail(0)}, ${wasm.v_detail(1)}`);
}

/** An instance with the model of `folder`: program.bin, model.json and the weights beside. */
function load(folder, tokens, seqs) {
  const { memory, wasm } = instantiate();
  const info = JSON.parse(readFileSync(join(folder, "model.json"), "utf8"));
  const put = (bytes) => {
    const at = wasm.v_alloc(bytes.length) >>> 0;
    new Uint8Array(memory.buffer).set(bytes, at);
    return at;
  };
  const program = readFileSync(join(folder, "program.bin"));
  check(
    wasm,
    wasm.v_create(
      put(program),
      program.length,
      tokens ?? info.tokens,
      seqs ?? info.lengths.length,
      1,
      1,
    ),
  );
  if (info.kv_blocks) check(wasm, wasm.v_cache(info.kv_blocks, 0, seqs, 0));
  info.tensors.forEach((tensor, index) => {
    const parts = tensor.parts.map((name) => put(readFileSync(join(folder, name))));
    check(wasm, wasm.v_write_rows(index, 0, tensor.rows, parts[0], parts[1] ?? 0, parts[2] ?? 0));
  });
  check(wasm, wasm.v_seal());
  const u32 = (part) => new Uint32Array(memory.buffer, wasm.v_workspace(0, part) >>> 0);
  return { wasm, info, u32 };
}

/** Fastest time of the step in the workspace, whole and op by op. */
function time({ wasm, info }, steps) {
  const opTimes = () => info.ops.map((_, op) => wasm.v_bench_op(op));
  const best = info.ops.map(() => Infinity);
  let total = Infinity;
  for (let i = 0; i < steps; i++) {
    opTimes();
    const before = now();
    check(wasm, wasm.v_run(0));
    total = Math.min(total, now() - before);
    opTimes().forEach((time, op) => (best[op] = Math.min(best[op], time)));
  }
  return { total, ops: best };
}

/** The step of an encoder, or of one linear layer. */
function model(folder) {
  const host = load(folder);
  const { tokens, lengths, steps, vocabulary } = host.info;
  host.u32(0).set([tokens, lengths.length]);
  const ids = host.u32(1);
  for (let i = 0; i < tokens; i++) ids[i] = (i * 7919) % vocabulary;
  let first = 0;
  lengths.forEach((length, s) => {
    host.u32(2).set([first, length, 0, 0], 4 * s);
    first += length;
  });
  return time(host, steps);
}

/** Steps of a decoder: each of `scenarios` has so many sequences of so many tokens, after a
 * context; every sequence's last token is sampled greedily. */
function decoder(folder) {
  const scenarios = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")).scenarios;
  const most = (of) => Math.max(...scenarios.map(of));
  const host = load(
    folder,
    most((s) => s.seqs * s.tokens),
    most((s) => s.seqs),
  );
  return scenarios.map(({ seqs, tokens, context, steps }) => {
    const header = host.u32(0),
      blocks = Math.ceil((context + tokens) / 32);
    header.set([seqs * tokens, seqs]);
    header.set([seqs, 0, 1], 5);
    for (let s = 0, block = 0; s < seqs; s++) {
      host.u32(2).set([s * tokens, tokens, context, 0], 4 * s);
      host.u32(5)[s] = s * blocks;
      for (let b = 0; b < blocks; b++) host.u32(6)[s * blocks + b] = block++;
      host.u32(8)[s] = (s + 1) * tokens - 1;
      for (let i = 0; i < tokens; i++) {
        host.u32(1)[s * tokens + i] = ((s * tokens + i) * 7919) % host.info.vocabulary;
      }
      const row = 16 * s; // a v_sample_row: temperature 0, top_p 1, repetition 1, no mask
      host.u32(9).fill(0, row, row + 16);
      host.u32(9)[row + 2] = host.u32(9)[row + 4] = 0x3f800000;
      host.u32(9)[row + 15] = 0xffffffff;
    }
    return time(host, steps);
  });
}

console.log(
  JSON.stringify({
    kernels: plan.kernels ? kernels() : null,
    gemvs: plan.gemvs ? gemvs() : null,
    models: plan.models.map(model),
    decoders: plan.decoders.map(decoder),
  }),
);
