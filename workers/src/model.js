/** The public face of a loaded model. */
import { checkDeadline, checkInt, checkNames } from "./checks.js";
import { closedError } from "./engine/engine.js";
import { encodeOptions, vectorFormat } from "./embedding/options.js";
import { Pipeline } from "./embedding/pipeline.js";
import { MAX_PIECE_TEXTS, checkTexts, gather, pieces } from "./embedding/texts.js";
import { vectorsOf } from "./embedding/vectors.js";
import { InvalidInput, InvalidType } from "./errors.js";

/** @typedef {import("./embedding/options.js").EmbedOptions} EmbedOptions */
/** @typedef {import("./embedding/options.js").EncodeOptions} EncodeOptions */
/** @typedef {import("./embedding/pipeline.js").Piece} Piece */
/** @typedef {import("./embedding/texts.js").Text} Text */
/** @typedef {import("./embedding/tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {import("./embedding/vectors.js").EmbedResult} EmbedResult */
/** @typedef {import("./embedding/vectors.js").Vector} Vector */
/** @typedef {import("./engine/engine.js").Engine} Engine */
/** @typedef {import("./generation/generator.js").ChatArguments} ChatArguments */
/** @typedef {import("./generation/generator.js").GenerateArguments} GenerateArguments */
/** @typedef {import("./generation/generator.js").Generator} Generator */
/** @typedef {import("./generation/stream.js").GenerationStream} GenerationStream */

const BULK_WINDOW = 1024;

/**
 * What was loaded, and on what it runs.
 *
 * @typedef {object} ModelFacts
 * @property {string} id name of the model
 * @property {readonly string[]} tasks "embed", "generate"
 * @property {number} dimensions columns of a vector; 0 for a model that generates
 * @property {boolean} normalized vectors have length 1
 * @property {number} maxTokens longest text in tokens, special tokens included; more is
 *   truncated
 * @property {number} maxContext of a model that generates: most tokens of prompt and answer
 * @property {number} vocabSize token ids are below it
 * @property {boolean} includePrompt pooling counts the prompt's tokens
 * @property {Readonly<Record<string, string>>} prompts name -> text
 * @property {string | null} defaultPromptName the prompt used when a call names none
 * @property {string} quantization name of the weights' scheme
 * @property {import("./wasm/variants.js").Variant} variant the wasm build in use
 * @property {number} threads
 * @property {import("./step.js").StepLimits} limits what one step holds
 * @property {Record<string, number>} memoryBytes
 * @property {number} loadMs
 * @property {readonly string[]} warnings what the host could not give
 */

/**
 * A loaded model: it embeds or it generates. Make one with `load`.
 *
 * Calls may run concurrently, and are batched together; a result never depends on what else
 * was in the batch. `close` it when it is not needed any more.
 */
export class Model {
  #engine;
  #tokenizer;
  #generator;
  #closed = false;

  /**
   * @param {Engine} engine
   * @param {ModelFacts} info sizes, limits and backend
   * @param {{tokenizer?: Tokenizer, generator?: Generator}} parts
   */
  constructor(engine, info, { tokenizer, generator }) {
    this.info = Object.freeze(info);
    this.#engine = engine;
    this.#tokenizer = tokenizer ?? null;
    this.#generator = generator ?? null;
  }

  /**
   * Embed one text or many; a long list is fed to the queue in pieces.
   *
   * A text of a list may also be given as token ids, special tokens included; a prompt is then
   * not put before it.
   *
   * @template {string | Iterable<Text>} T
   * @param {T} texts
   * @param {EmbedOptions} [options]
   * @returns {Promise<T extends string ? Vector : Vector[]>} a vector for a string, else one
   *   per text
   * @throws {InvalidInput} a text is neither a string nor token ids (the message names its
   *   index), or an option is outside its range
   * @throws {TooLong} with `truncate: "error"`
   * @throws {Overloaded | DeadlineExceeded | NonFinite | OutOfMemory | DeviceLost | Aborted}
   */
  async embed(texts, options) {
    const { vectors } = await this.embedWithInfo(texts, options);
    return /** @type {any} */ (vectors);
  }

  /**
   * `embed`, with token counts, truncation, timing and batching facts.
   *
   * @param {string | Iterable<Text>} texts
   * @param {EmbedOptions} [options]
   * @returns {Promise<EmbedResult>}
   */
  async embedWithInfo(texts, options = {}) {
    const { engine, tokenizer } = this.#embedding();
    const checked = encodeOptions(options, this.info);
    const format = vectorFormat(options, this.info);
    const deadlineNs = checkDeadline(options.deadlineMs, engine.nowNs());
    const items = checkTexts(texts, this.info.vocabSize);
    const pipeline = new Pipeline(engine, tokenizer, checked, deadlineNs);
    /** @type {Piece[]} */
    const done = [];
    try {
      const cut = [...pieces(items, this.#maxPiece())];
      for (const piece of cut) {
        while (pipeline.numTexts + piece.length > BULK_WINDOW && pipeline.size > 0) {
          done.push(await pipeline.pop());
        }
        // A single piece reaches the queue in this very call
        const pushed = pipeline.push(piece, cut.length > 1);
        if (pushed !== undefined) await pushed;
      }
      while (pipeline.size > 0) done.push(await pipeline.pop());
    } finally {
      pipeline.close();
    }
    return resultOf(done, format, typeof texts === "string");
  }

  /**
   * Embed texts as they come: one vector per text, in order, in bounded memory.
   *
   * @param {Iterable<Text> | AsyncIterable<Text>} texts it is read ahead of the results,
   *   up to the window; for a live source call `embed` for each text instead
   * @param {Omit<EmbedOptions, "deadlineMs"> & {window?: number}} [options] traffic is
   *   "throughput" by default; window: most texts in flight, 1,024 by default: a slow
   *   consumer holds the reading back
   * @returns {AsyncGenerator<Vector, void, void>}
   */
  async *embedStream(texts, options = {}) {
    const { engine, tokenizer } = this.#embedding();
    if (typeof texts === "string") {
      throw new InvalidType("texts is a string, expected an iterable of strings; use embed");
    }
    const named = { traffic: /** @type {const} */ ("throughput"), names: ["window"] };
    const checked = encodeOptions(options, this.info, named);
    const format = vectorFormat(options, this.info);
    const window = checkInt("window", options.window ?? BULK_WINDOW, 1, 2 ** 31);
    const size = Math.min(this.#maxPiece(), Math.max(Math.floor(window / 4), 1));
    const pipeline = new Pipeline(engine, tokenizer, checked);
    try {
      for await (const piece of gather(texts, size, this.info.vocabSize)) {
        while (pipeline.size > 0 && pipeline.numTexts + piece.length > window) {
          yield* vectorsOf((await pipeline.pop()).request.output, format);
        }
        await pipeline.push(piece, true);
      }
      while (pipeline.size > 0) yield* vectorsOf((await pipeline.pop()).request.output, format);
    } finally {
      pipeline.close();
    }
  }

  /**
   * Continue a prompt.
   *
   * `for await (const piece of model.generate(...))` yields a `TextPiece` per token,
   * `await model.generate(...).result()` the whole. Every option is checked here, before any
   * work. With the default temperature the text depends on the prompt alone; otherwise on the
   * prompt, the options and the seed, never on other requests.
   *
   * @param {string | ArrayLike<number>} prompt text, in which control tokens count as such,
   *   or token ids
   * @param {GenerateArguments} [options]
   * @returns {GenerationStream}
   * @throws {InvalidInput | TooLong} an argument is outside its range. And from the stream:
   *   `Overloaded`, `NeverFits`, `DeadlineExceeded`, `NonFinite`, `OutOfMemory`, `DeviceLost`,
   *   `Aborted`
   */
  generate(prompt, options = {}) {
    return this.#generating().generate(prompt, options);
  }

  /**
   * Answer a chat: `generate` on the prompt that the model's template makes of it. Control
   * tokens inside messages are text: nobody can forge a turn.
   *
   * @param {readonly Record<string, unknown>[]} messages objects with `role` (system,
   *   developer, user, assistant or tool) and `content` (a string, or an array of text parts)
   * @param {ChatArguments} [options]
   * @returns {GenerationStream}
   * @throws {InvalidInput} also an unknown role, a template that refuses the messages, or a
   *   model without a template
   */
  chat(messages, options = {}) {
    return this.#generating().chat(messages, options);
  }

  /**
   * The text of a single token, as reports of log-probabilities name it; special tokens count.
   *
   * @param {number} tokenId
   * @returns {string} with U+FFFD for a token that is part of a character
   */
  tokenText(tokenId) {
    return this.#generating().tokenText(tokenId);
  }

  /** Queue, batches and prediction quality, now and since loading. */
  stats() {
    return this.#engine.stats();
  }

  /**
   * Stop and free everything. Idempotent, and fine while calls are waiting.
   *
   * @param {{drain?: boolean}} [options] drain: let submitted work finish; otherwise it ends
   *   with `Aborted`
   * @throws {InvalidInput} unknown option; nothing is closed
   */
  async close(options = {}) {
    checkNames(options, ["drain"]);
    this.#closed = true;
    await this.#engine.close(options);
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  #embedding() {
    if (this.#closed) throw closedError();
    if (this.#tokenizer === null) {
      throw new InvalidInput(
        "the model generates text, it makes no embeddings; load an embedding model",
      );
    }
    return { engine: this.#engine, tokenizer: this.#tokenizer };
  }

  #generating() {
    if (this.#closed) throw closedError();
    if (this.#generator === null) {
      throw new InvalidInput("the model makes embeddings, it cannot generate text; load a decoder");
    }
    return this.#generator;
  }

  #maxPiece() {
    return Math.min(MAX_PIECE_TEXTS, this.#engine.maxQueueSize);
  }
}

/**
 * @param {readonly Piece[]} done
 * @param {import("./embedding/options.js").VectorFormat} format
 * @param {boolean} single
 * @returns {EmbedResult}
 */
function resultOf(done, format, single) {
  const requests = done.map(({ request }) => request);
  const encoded = done.flatMap((piece) => piece.encoded);
  const vectors = requests.flatMap((request) => vectorsOf(request.output, format));
  const sum = (/** @type {number[]} */ values) => values.reduce((a, b) => a + b, 0);
  return {
    vectors: single ? vectors[0] : vectors,
    tokenCounts: encoded.map(({ ids }) => ids.length),
    truncated: encoded.map(({ ids, numTokens }) => numTokens > ids.length),
    queueMs: requests.length > 0 ? requests[0].queueNs / 1e6 : 0,
    deviceMs: sum(requests.map((r) => r.deviceNs)) / 1e6,
    steps: sum(requests.map((r) => r.steps)),
    batchSeqs: Math.max(0, ...requests.map((r) => r.batchSeqs)),
    batchTokens: Math.max(0, ...requests.map((r) => r.batchTokens)),
    cachedTokens: 0,
  };
}
