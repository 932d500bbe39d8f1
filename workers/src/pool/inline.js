/** Runs steps on the calling thread: for hosts without workers. */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("../step/workspace.js").Workspace} Workspace */
/** @typedef {import("../wasm/instance.js").Runtime} Runtime */

/** @typedef {import("./runner.js").StepRunner} StepRunner */

/** @implements {StepRunner} */
export class InlinePool {
  threads = 1;
  concurrency = 1;
  /** @type {DeviceLost | null} */
  lost = null;
  #runtime;
  #workspace;
  #closed = false;

  /**
   * @param {Runtime} runtime
   * @param {Workspace} workspace its first
   */
  constructor(runtime, workspace) {
    this.#runtime = runtime;
    this.#workspace = workspace;
  }

  /** @param {import("./runner.js").Step} step */
  async run(step) {
    if (this.#closed) throw new Aborted("the model is closed; load it again");
    if (this.lost) throw this.lost;
    this.#workspace.write(step);
    const start = performance.now();
    try {
      this.#runtime.exports.v_run(0);
    } catch (cause) {
      this.lost = new DeviceLost(`the wasm runtime trapped (${cause})`, { cause });
      throw this.lost;
    }
    return this.#workspace.read((performance.now() - start) * 1e6);
  }

  async close() {
    this.#closed = true;
  }
}
