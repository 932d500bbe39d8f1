/**
 * Replaces a backend that died. Steps that were in it fail with `DeviceLost`; the next one
 * waits for a new backend, whose weights are read and checked like the first one's.
 */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("./runner.js").Step} Step */
/** @typedef {import("./runner.js").StepResult} StepResult */
/** @typedef {import("./runner.js").StepRunner} StepRunner */

/** Deaths in a row, without a step that worked, after which a model is given up. */
const MAX_LOSSES = 3;

/** @implements {StepRunner} */
export class RecoveringPool {
  #runner;
  #create;
  #stateful;
  #losses = 0;
  /** Whether a caller has seen the present loss. */
  #told = false;
  #closed = false;
  /** @type {Promise<void> | null} */
  #recovery = null;

  /**
   * @param {StepRunner} runner
   * @param {(() => Promise<StepRunner>) | null} create makes another; null: there is none
   * @param {boolean} stateful it holds a key-value cache, which dies with it: every loss is
   *   told to at least one step, so that the engine knows
   */
  constructor(runner, create, stateful) {
    this.#runner = runner;
    this.#create = create;
    this.#stateful = stateful;
  }

  get threads() {
    return this.#runner.threads;
  }

  get concurrency() {
    return this.#runner.concurrency;
  }

  get lost() {
    return this.#runner.lost;
  }

  /**
   * @param {Step} step
   * @param {number} threads
   * @returns {Promise<StepResult>}
   */
  async run(step, threads) {
    if (this.#closed) throw new Aborted("the model is closed; load it again");
    if (this.#runner.lost) await this.#recover(this.#runner.lost);
    try {
      const result = await this.#runner.run(step, threads);
      this.#losses = 0;
      return result;
    } catch (error) {
      if (error instanceof DeviceLost) this.#told = true;
      throw error;
    }
  }

  async close() {
    this.#closed = true;
    await this.#recovery?.catch(() => {});
    await this.#runner.close();
  }

  /** @param {DeviceLost} lost */
  async #recover(lost) {
    if (this.#stateful && !this.#told) {
      this.#told = true;
      throw lost;
    }
    this.#recovery ??= this.#replace(lost).finally(() => (this.#recovery = null));
    await this.#recovery;
  }

  /** @param {DeviceLost} lost */
  async #replace(lost) {
    const giveUp = (/** @type {string} */ why, /** @type {unknown} */ cause) =>
      new DeviceLost(`${lost.message}, ${why}; load the model again`, { cause });
    if (this.#create === null) throw giveUp("and its files are not at hand any more", lost);
    if (this.#losses === MAX_LOSSES) throw giveUp(`the ${MAX_LOSSES}rd time in a row`, lost);
    this.#losses += 1;
    const old = this.#runner;
    this.#runner = new LostRunner(lost); // the old memory can be collected meanwhile
    await old.close();
    let runner;
    try {
      runner = await this.#create();
    } catch (cause) {
      throw giveUp(`and could not be started again (${cause})`, cause);
    }
    this.#runner = runner;
    this.#told = false;
    if (this.#closed) throw new Aborted("the model is closed; load it again");
  }
}

/** In the place of a dead backend. @implements {StepRunner} */
class LostRunner {
  threads = 1;
  concurrency = 1;

  /** @param {DeviceLost} lost */
  constructor(lost) {
    this.lost = lost;
  }

  /** @returns {Promise<StepResult>} */
  async run() {
    throw this.lost;
  }

  async close() {}
}
