/**
 * What this host's WebAssembly can do, found by trying: an engine that lists a feature may
 * still compute it differently or refuse to use it (a shared memory that cannot be posted).
 * The probe modules are assembled by hand; the listings show what they hold.
 */

const HEADER = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];

// (func (result v128) (i8x16.splat (i32.const 0)))
const SIMD = module(
  [0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b],
  [0x03, 0x02, 0x01, 0x00],
  [0x0a, 0x08, 0x01, 0x06, 0x00, 0x41, 0x00, 0xfd, 0x0f, 0x0b],
);

// (func (export "dot") (param i32 i32 i32) (result i32)
//   (i32x4.extract_lane 3 (i32x4.relaxed_dot_i8x16_i7x16_add_s
//     (i32x4.splat (local.get 0)) (i32x4.splat (local.get 1)) (i32x4.splat (local.get 2)))))
const RELAXED_DOT = module(
  [0x01, 0x08, 0x01, 0x60, 0x03, 0x7f, 0x7f, 0x7f, 0x01, 0x7f],
  [0x03, 0x02, 0x01, 0x00],
  [0x07, 0x07, 0x01, 0x03, 0x64, 0x6f, 0x74, 0x00, 0x00],
  // prettier-ignore
  [0x0a, 0x16, 0x01, 0x14, 0x00, 0x20, 0x00, 0xfd, 0x11, 0x20, 0x01, 0xfd, 0x11, 0x20, 0x02,
   0xfd, 0x11, 0xfd, 0x93, 0x02, 0xfd, 0x1b, 0x03, 0x0b],
);

// (memory 1 1 shared) (func (drop (i32.atomic.load (i32.const 0))))
const ATOMICS = module(
  [0x01, 0x04, 0x01, 0x60, 0x00, 0x00],
  [0x03, 0x02, 0x01, 0x00],
  [0x05, 0x04, 0x01, 0x03, 0x01, 0x01],
  [0x0a, 0x0b, 0x01, 0x09, 0x00, 0x41, 0x00, 0xfe, 0x10, 0x02, 0x00, 0x1a, 0x0b],
);

/** @param {number[][]} sections */
function module(...sections) {
  return new Uint8Array([...HEADER, ...sections.flat()]);
}

/** @returns {boolean} 128-bit SIMD, without which no build of Volery runs */
export function hasSimd() {
  return WebAssembly.validate(SIMD);
}

/** @returns {boolean} wasm threads: shared memory and atomics */
export function hasAtomics() {
  return WebAssembly.validate(ATOMICS);
}

/**
 * Whether the relaxed int8 dot product exists and is exact where Volery uses it: signed 8
 * bits times 0..127. The extremes catch an engine that saturates in 16 bits.
 *
 * @returns {boolean}
 */
export function hasExactRelaxedDot() {
  if (!WebAssembly.validate(RELAXED_DOT)) return false;
  let dot;
  try {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(RELAXED_DOT));
    dot = /** @type {(a: number, b: number, acc: number) => number} */ (exports.dot);
  } catch {
    // An edge host that forbids compiling: the engine is V8, which is exact.
    return true;
  }
  const pack = (/** @type {number[]} */ bytes) =>
    new Int32Array(new Int8Array(bytes).buffer, 0, 1)[0];
  const cases = [
    [[-128, -128, -128, -128], [127, 127, 127, 127], 5],
    [[127, 127, 127, 127], [127, 127, 127, 127], -1],
    [[-127, 127, -128, 1], [1, 2, 126, 127], 1 << 20],
    [[3, -5, 7, -11], [0, 64, 65, 127], -(1 << 20)],
  ];
  return /** @type {[number[], number[], number][]} */ (cases).every(
    ([a, b, acc]) => dot(pack(a), pack(b), acc) === a.reduce((sum, x, i) => sum + x * b[i], acc),
  );
}

/**
 * Whether a shared memory really reaches another agent. Without cross-origin isolation a
 * shared memory still constructs and only posting it fails.
 *
 * @returns {Promise<boolean>}
 */
export async function canPostSharedMemory() {
  if (globalThis.crossOriginIsolated === false) return false;
  if (typeof SharedArrayBuffer === "undefined" || typeof MessageChannel === "undefined") {
    return false;
  }
  if (!hasAtomics()) return false;
  const { port1, port2 } = new MessageChannel();
  try {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    const arrived = new Promise((resolve) => {
      port2.onmessage = (event) => resolve(event.data instanceof WebAssembly.Memory);
      port2.onmessageerror = () => resolve(false);
    });
    port1.postMessage(memory);
    return /** @type {boolean} */ (await arrived);
  } catch {
    return false;
  } finally {
    port1.close();
    port2.close();
  }
}
