/** A generation on the engine's side: its samples, their text, and the facts about it. */
import { FinishReason } from "../batching/index.js";
import { InvalidInput, NeverFits, NonFinite } from "../errors.js";
import { TextReader } from "../generation/text.js";
import { Deferred } from "./deferred.js";
import { errorOfAny, overloaded } from "./request.js";

/** @typedef {import("../batching/events.js").RequestFinished} RequestFinished */
/** @typedef {import("../generation/options.js").GenerateOptions} GenerateOptions */
/** @typedef {import("../generation/text.js").Decode} Decode */
/** @typedef {import("../step.js").SamplingRow} SamplingRow */

/**
 * A token as the backend sampled it.
 *
 * @typedef {object} SampledToken
 * @property {number} tokenId
 * @property {number} logprob
 * @property {import("../step.js").TopLogprobs} top
 */

/** One continuation. */
export class SampleState {
  /** Ids that were emitted, the stop token included. @type {number[]} */
  tokens = [];
  /** What came and was not read. @type {SampledToken[]} */
  fresh = [];
  /**
   * Texts of `fresh`, where a stop string had to be looked for before the next step.
   *
   * @type {string[]}
   */
  texts = [];
  /** Its blocks in the key-value cache. @type {readonly number[]} */
  table = [];
  /** How often each token occurs in `tokens`. @type {Map<number, number>} */
  counts = new Map();
  /** "stop" or "length" once it ended. @type {"stop" | "length" | null} */
  finishReason = null;
  /** When its first and its last token came. */
  firstNs = 0;
  lastNs = 0;

  /**
   * @param {number} index
   * @param {TextReader} reader turns its ids into text
   * @param {SamplingRow} row
   */
  constructor(index, reader, row) {
    this.index = index;
    this.reader = reader;
    this.row = row;
  }
}

/** `Engine.generate` makes it; a stream reads it. */
export class GenerateRequest {
  /** Settled when the request ended; rejected with the reason why it failed. */
  done = /** @type {Deferred<void>} */ (new Deferred());
  /** Its owner does not want it any more. */
  aborted = false;
  /** From arrival to its first step, -1 before. */
  queueNs = -1;
  /** Tokens of the prompt that were not computed again. */
  cachedTokens = 0;
  /** The size of the largest step that carried it. */
  batchSeqs = 0;
  batchTokens = 0;

  /** Occurrences in the prompt, if penalties need them. @type {Map<number, number> | null} */
  #promptCounts;
  /** A row depends on what came before it. */
  #active;
  /** @type {Deferred<void> | null} */
  #waiter = null;

  /**
   * @param {object} fields
   * @param {number} fields.requestId
   * @param {string} fields.lane its model's name on the device
   * @param {readonly number[]} fields.prompt
   * @param {GenerateOptions} fields.options
   * @param {readonly number[]} fields.stopIds
   * @param {Decode} fields.decode
   * @param {number} fields.arrivalNs
   */
  constructor({ requestId, lane, prompt, options, stopIds, decode, arrivalNs }) {
    this.requestId = requestId;
    this.lane = lane;
    this.prompt = prompt;
    this.options = options;
    this.stopIds = stopIds;
    this.arrivalNs = arrivalNs;
    const { repetitionPenalty, presencePenalty, frequencyPenalty, temperature, seed } = options;
    const penalties = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
    this.#promptCounts = penalties ? countOf(prompt) : null;
    this.#active = temperature > 0 || penalties || options.logitsMask !== null;
    /** @type {SamplingRow} */
    const row = {
      temperature,
      topK: options.topK,
      topP: options.topP,
      minP: options.minP,
      repetitionPenalty,
      presencePenalty,
      frequencyPenalty,
      penalized: [],
      bias: options.logitBias,
      mask: null,
      seed,
      position: 0,
      topLogprobs: Math.max(options.topLogprobs, 0),
    };
    this.samples = Array.from({ length: options.n }, (_, i) => {
      const own = { ...row, seed: BigInt.asUintN(64, BigInt(seed) + BigInt(i)) };
      return new SampleState(i, new TextReader(decode, options.stop), own);
    });
  }

  /**
   * How to sample the token at `position`.
   *
   * @param {SampleState} sample
   * @param {number} position
   * @returns {SamplingRow}
   * @throws {InvalidInput} the mask hook returned something that is no mask
   */
  samplingRow(sample, position) {
    if (!this.#active) return sample.row;
    const { logitsMask } = this.options;
    let mask = null;
    if (logitsMask !== null) {
      mask = logitsMask([...sample.tokens]) ?? null;
      if (mask !== null && !(mask instanceof Uint32Array)) {
        throw new InvalidInput(
          `logitsMask returned ${typeof mask}, expected a Uint32Array, null or undefined`,
        );
      }
    }
    return { ...sample.row, penalized: this.#penalized(sample), mask, position };
  }

  /**
   * Read a token before the next step is scheduled.
   *
   * @param {SampleState} sample
   * @param {number} tokenId
   * @returns {boolean} whether a stop string ends the sample
   */
  lookForStop(sample, tokenId) {
    const ends = this.stopIds.includes(tokenId) || tokenId < 0;
    sample.texts.push(ends ? "" : sample.reader.feed(tokenId));
    return sample.reader.stopped;
  }

  /**
   * A token is certain.
   *
   * @param {SampleState} sample
   * @param {SampledToken} token
   * @param {number} nowNs
   */
  emit(sample, token, nowNs) {
    if (sample.tokens.length === 0) sample.firstNs = nowNs;
    sample.tokens.push(token.tokenId);
    sample.fresh.push(token);
    sample.lastNs = nowNs;
    if (this.#promptCounts !== null) {
      sample.counts.set(token.tokenId, (sample.counts.get(token.tokenId) ?? 0) + 1);
    }
    this.wake();
  }

  /** Tell the reader that there is something new. */
  wake() {
    this.#waiter?.resolve();
    this.#waiter = null;
  }

  /** Wait for the next `wake`. */
  changed() {
    this.#waiter ??= new Deferred();
    return this.#waiter.promise;
  }

  /**
   * Tell the owner how it ended, unless it knows.
   *
   * @param {unknown} error
   */
  fail(error) {
    if (!this.done.settled) this.done.reject(error);
    this.wake();
  }

  /** It ended well. */
  finish() {
    if (!this.done.settled) this.done.resolve();
    this.wake();
  }

  /**
   * The typed error of a generation that ended without a result.
   *
   * @param {RequestFinished} finished
   * @param {unknown} cause what the backend threw in the step that failed, if one did
   */
  errorOf(finished, cause) {
    const { item, value } = finished;
    switch (finished.reason) {
      case FinishReason.NEVER_FITS:
        return new NeverFits(
          item >= 0
            ? `the prompt has ${this.prompt.length} tokens, the context and the key-value ` +
                `cache hold ${value} and a new one; shorten it or load the model with more kvBlocks`
            : `n is ${this.options.n}, expected at most ${value}: the sequences that may run ` +
                "at once or wait",
        );
      case FinishReason.OVERLOADED:
        return overloaded("the queue is full", value);
      case FinishReason.NON_FINITE:
        return new NonFinite(
          "the model computed NaN or infinity for this prompt, expected finite numbers; " +
            "check the exported weights",
        );
    }
    return errorOfAny(finished, cause, "the sequence");
  }

  /** @param {SampleState} sample */
  #penalized(sample) {
    const before = this.#promptCounts;
    if (before === null) return [];
    const ids = [...new Set([...before.keys(), ...sample.counts.keys()])].sort((a, b) => a - b);
    return ids.flatMap((id) => [id, before.get(id) ?? 0, sample.counts.get(id) ?? 0]);
  }
}

/** @param {readonly number[]} ids */
function countOf(ids) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}
