/** A pool thread's side: its own instance over the shared memory, led by `v_worker`. */

/** @typedef {import("../wasm/abi.js").Exports} Exports */

/**
 * Serve steps until the pool stops this thread. Blocks the calling worker for good, so
 * messages go out through `post` only, and nothing is received any more.
 *
 * @param {{module: WebAssembly.Module, memory: WebAssembly.Memory, thread: number}} task
 * @param {(message: unknown) => void} post
 */
export function serveThread({ module, memory, thread }, post) {
  const instance = new WebAssembly.Instance(module, { env: { memory } });
  const exports = /** @type {Exports} */ (/** @type {unknown} */ (instance.exports));
  const { __stack_pointer: stackPointer, v_stack_top, v_worker } = exports;
  if (!stackPointer) throw new Error("the wasm build has no threads");
  stackPointer.value = v_stack_top(thread) >>> 0;
  post({ type: "ready" });
  for (let ws = v_worker(thread); ws >= 0; ws = v_worker(thread)) post({ type: "led", ws });
}
