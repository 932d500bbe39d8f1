/** Texts on their way through tokenizer and engine, piece by piece, in order. */
import { Aborted, TooLong } from "../errors.js";

/** @typedef {import("../engine/engine.js").Engine} Engine */
/** @typedef {import("../engine/request.js").EncodeRequest} EncodeRequest */
/** @typedef {import("./options.js").EncodeOptions} EncodeOptions */
/** @typedef {import("./texts.js").Text} Text */
/** @typedef {import("./tokenizer.js").Encoded} Encoded */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

/**
 * A piece: f32 rows in `request.output`, and its texts' tokens.
 *
 * @typedef {object} Piece
 * @property {EncodeRequest} request
 * @property {readonly Encoded[]} encoded
 */

/** Pieces in flight, oldest first. `push` feeds, `pop` waits, `close` ends it all. */
export class Pipeline {
  /** Texts pushed and not yet popped. */
  numTexts = 0;

  #engine;
  #tokenizer;
  #options;
  #deadlineNs;
  #pushed = 0;
  /** @type {Piece[]} */
  #pieces = [];
  #onAbort = () => this.#abort(this.#aborted());

  /**
   * @param {Engine} engine
   * @param {Tokenizer} tokenizer
   * @param {EncodeOptions} options
   * @param {number} [deadlineNs] on the engine's clock; -1 = never
   */
  constructor(engine, tokenizer, options, deadlineNs = -1) {
    this.#engine = engine;
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.#deadlineNs = deadlineNs;
    options.signal?.addEventListener("abort", this.#onAbort);
  }

  /** Pieces in flight. */
  get size() {
    return this.#pieces.length;
  }

  /**
   * Tokenize a piece and submit it, at once unless it is to wait.
   *
   * @param {readonly Text[]} texts
   * @param {boolean} wait for room in the queue, instead of ending as `Overloaded`
   * @returns {Promise<void> | void}
   */
  push(texts, wait) {
    if (this.#options.signal?.aborted) throw this.#aborted();
    const { prompt, truncate, traffic, signal } = this.#options;
    const { maxTokens } = this.#tokenizer;
    const encoded = texts.map((text, i) =>
      typeof text === "string"
        ? this.#tokenizer.encode(prompt + text, `texts[${this.#pushed + i}]`)
        : { ids: text.slice(0, maxTokens), numTokens: text.length, hasPrompt: false },
    );
    if (truncate === "error") this.#refuseLong(encoded);
    if (!wait) return this.#submit(encoded);
    return this.#engine.waitForRoom(texts.length, traffic, signal).then(() => {
      if (signal?.aborted) throw this.#aborted();
      this.#submit(encoded);
    });
  }

  /**
   * Wait for the oldest piece.
   *
   * @returns {Promise<Piece>}
   */
  async pop() {
    const [piece] = this.#pieces;
    await piece.request.done.promise;
    this.#pieces.shift();
    this.numTexts -= piece.encoded.length;
    return piece;
  }

  /** Drop whatever is in flight. Idempotent. */
  close() {
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#abort();
    this.#pieces = [];
  }

  /** @param {readonly Encoded[]} encoded */
  #submit(encoded) {
    const request = this.#engine.submit(
      encoded.map(({ ids }) => ids),
      {
        poolSkips: this.#poolSkips(encoded),
        traffic: this.#options.traffic,
        deadlineNs: this.#deadlineNs,
        latencyTargetNs: this.#options.latencyTargetNs,
        tenant: this.#options.tenant,
        firstIndex: this.#pushed,
      },
    );
    this.#pushed += encoded.length;
    this.numTexts += encoded.length;
    this.#pieces.push({ request, encoded });
  }

  /** @param {unknown} [error] */
  #abort(error) {
    for (const { request } of this.#pieces) this.#engine.abort(request, error);
  }

  #aborted() {
    return new Aborted("the call was aborted", { cause: this.#options.signal?.reason });
  }

  /** @param {readonly Encoded[]} encoded */
  #poolSkips(encoded) {
    const { prompt, excludePrompt } = this.#options;
    if (prompt === "" || !excludePrompt) return null;
    const skip = this.#tokenizer.promptLength(prompt);
    return encoded.map(({ ids, hasPrompt = true }) =>
      hasPrompt ? Math.min(skip, ids.length - 1) : 0,
    );
  }

  /** @param {readonly Encoded[]} encoded */
  #refuseLong(encoded) {
    const { maxTokens } = this.#tokenizer;
    encoded.forEach(({ numTokens }, i) => {
      if (numTokens <= maxTokens) return;
      throw new TooLong(
        `texts[${this.#pushed + i}] has ${numTokens} tokens, the model takes ${maxTokens}; ` +
          'shorten it or use truncate: "end"',
        { numTokens, maxTokens },
      );
    });
  }
}
