// Times one bench build of the wasm module and prints JSON. See __main__.py.
//   node bench.mjs <module.wasm> [<model folder> ...]
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [modulePath, ...models] = process.argv.slice(2);
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
  for (const start = performance.now(); performance.now() - start < 1000 * SECONDS; ) {
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
  ...[1, 2, 3].flatMap((format) => [[format, 1, 8], [format, 2, 8], [format, 4, 8], [format, 1, 16]]),
];
const GEMV_NAMES = ["read", "i4b32", "i8b32", "s8b32"];

/** Bytes per millisecond of the kernels for few rows, and of a loop that only reads. */
function gemvs() {
  const { wasm } = instantiate();
  wasm.v_bench_gemv_prepare();
  const best = GEMVS.map(() => 0);
  for (const start = performance.now(); performance.now() - start < 1000 * SECONDS; ) {
    GEMVS.forEach(([format, rows, bits], i) => {
      const before = now();
      const bytes = wasm.v_bench_gemv(format, rows, bits === 16 ? 1 : 0) >>> 0;
      best[i] = Math.max(best[i], bytes / (now() - before));
    });
  }
  return GEMVS.map(([format, rows, bits], i) => [GEMV_NAMES[format], rows, bits, best[i]]);
}

/** Loads program.bin, model.json and the weights beside them; returns times per op. */
function model(folder) {
  const { memory, wasm } = instantiate();
  const info = JSON.parse(readFileSync(join(folder, "model.json"), "utf8"));
  const put = (bytes) => {
    const at = wasm.v_alloc(bytes.length) >>> 0;
    new Uint8Array(memory.buffer).set(bytes, at);
    return at;
  };
  const program = readFileSync(join(folder, "program.bin"));
  const { tokens, lengths, steps } = info;
  const check = (status) => {
    if (status !== 0) throw new Error(`status ${status}: ${wasm.v_detail(0)}, ${wasm.v_detail(1)}`);
  };
  check(wasm.v_create(put(program), program.length, tokens, lengths.length, 1, 1));
  info.tensors.forEach((tensor, index) => {
    const parts = tensor.parts.map((name) => put(readFileSync(join(folder, name))));
    check(wasm.v_write_rows(index, 0, tensor.rows, parts[0], parts[1] ?? 0, parts[2] ?? 0));
  });
  check(wasm.v_seal());
  const u32 = (part) => new Uint32Array(memory.buffer, wasm.v_workspace(0, part) >>> 0);
  u32(0).set([tokens, lengths.length]);
  const ids = u32(1);
  for (let i = 0; i < tokens; i++) ids[i] = (i * 7919) % info.vocabulary;
  let first = 0;
  lengths.forEach((length, s) => {
    u32(2).set([first, length, 0, 0], 4 * s);
    first += length;
  });
  const opTimes = () => info.ops.map((_, op) => wasm.v_bench_op(op));
  const best = info.ops.map(() => Infinity);
  let total = Infinity;
  for (let i = 0; i < steps; i++) {
    opTimes();
    const before = now();
    check(wasm.v_run(0));
    total = Math.min(total, now() - before);
    opTimes().forEach((time, op) => (best[op] = Math.min(best[op], time)));
  }
  return { total, ops: best };
}

console.log(JSON.stringify({ kernels: kernels(), gemvs: gemvs(), models: models.map(model) }));
