/**
 * What Python in the page drives: the hands, behind methods that take and give flat arrays.
 *
 * The batching core and the engine stay in Python. Strings cross as JSON, numbers as typed
 * arrays, and every outcome through one callback that lives as long as the model: nothing
 * that crosses has to be destroyed by hand.
 */
import { SeqStatus } from "../step.js";
import { stepOfWords } from "./step-words.js";

/** @typedef {import("../hands.js").Model} Model */
/** @typedef {import("../step.js").StepResult} StepResult */

/**
 * What is left out is undefined, which Python sees as None.
 *
 * @callback Completed
 * @param {number} stepId
 * @param {string | undefined} errorName class of the error, if there is one
 * @param {string} errorMessage
 * @param {Float32Array | undefined} output
 * @param {Uint8Array | undefined} statuses undefined: all are fine
 * @param {Int32Array | undefined} tokenIds of a step that samples
 * @param {Float32Array | undefined} logprobs
 * @param {string} top JSON: per wanted row pairs of id and logprob, or "" for none
 * @param {number} deviceNs
 */

export class Bridge {
  #model;
  #completed;
  #isDecoder;

  /**
   * @param {Model} model
   * @param {Completed} completed
   */
  constructor(model, completed) {
    this.#model = model;
    this.#completed = completed;
    this.#isDecoder = model.info.limits.kvBlocks > 0;
  }

  /** JSON of `model.info`. */
  info() {
    return JSON.stringify(this.#model.info);
  }

  /**
   * Start a step; `completed` is called once for it, later.
   *
   * @param {number} stepId
   * @param {Int32Array} words
   * @param {Float64Array | undefined} numbers
   * @param {number} threads
   */
  submit(stepId, words, numbers, threads) {
    this.#run(stepId, words, numbers, threads);
  }

  /**
   * @param {number} stepId
   * @param {Int32Array} words
   * @param {Float64Array | undefined} numbers
   * @param {number} threads
   */
  async #run(stepId, words, numbers, threads) {
    let result;
    try {
      const step = stepOfWords(words, numbers, this.#isDecoder);
      result = await this.#model.run(step, { threads });
    } catch (error) {
      const { name, message } = described(error);
      this.#completed(stepId, name, message, undefined, undefined, undefined, undefined, "", 0);
      return;
    }
    const { output, statuses, sampled, deviceNs } = result;
    this.#completed(
      stepId,
      undefined,
      "",
      output.length > 0 ? output : undefined,
      statuses.every((s) => s === SeqStatus.OK) ? undefined : statuses,
      sampled?.tokenIds,
      sampled?.logprobs,
      sampled ? topOf(sampled) : "",
      deviceNs,
    );
  }

  /** @returns {Promise<void>} */
  close() {
    return this.#model.close();
  }
}

/** @param {unknown} error */
function described(error) {
  if (error instanceof Error) return { name: error.constructor.name, message: error.message };
  return { name: "Error", message: String(error) };
}

/** @param {NonNullable<StepResult["sampled"]>} sampled */
function topOf({ top }) {
  if (top.every(({ tokenIds }) => tokenIds.length === 0)) return "";
  return JSON.stringify(
    top.map(({ tokenIds, logprobs }) => Array.from(tokenIds, (id, i) => [id, logprobs[i]])),
  );
}
