// What bounds a step, bare: bytes read per second, and operations of the dot product.
//   node bare.mjs <bench build of the wasm module>
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const READ = 0;
const BARE_DOT = 0;
const OPERATIONS = 2 * 256 * 384 * 384; // of one call, as wasm/bench/kernels.c has them
const SECONDS = 0.25;

/** Seconds of processor time. */
function now() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const memory = new WebAssembly.Memory({ initial: 64 });
const env = { memory, now: () => now() * 1000 };
const wasm = new WebAssembly.Instance(module, { env }).exports;
wasm.v_bench_prepare();
wasm.v_bench_gemv_prepare();

/** The median rate of many calls, each of which returns what it did. */
function rate(call) {
  const rates = [];
  for (const start = now(); now() - start < SECONDS;) {
    const before = now();
    const done = call();
    rates.push(done / (now() - before));
  }
  return rates.sort((a, b) => a - b)[rates.length >> 1];
}

function measure() {
  return {
    read_bytes_per_s: rate(() => wasm.v_bench_gemv(READ, 1, 0) >>> 0),
    dot_operations_per_s: rate(() => {
      for (let i = 0; i < 16; i++) wasm.v_bench_kernel(BARE_DOT);
      return 16 * OPERATIONS;
    }),
  };
}

measure();
console.log(JSON.stringify({ ready: {} }));
for await (const _ of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(measure()));
}
