/** A generation as its caller holds it: iterate over it, or wait for the whole. */
import { Aborted, InvalidInput } from "../errors.js";

/** @typedef {import("../engine/engine.js").Engine} Engine */
/** @typedef {import("../engine/generate.js").GenerateRequest} GenerateRequest */
/** @typedef {import("../engine/generate.js").SampleState} SampleState */
/** @typedef {import("./results.js").Completion} Completion */
/** @typedef {import("./results.js").GenerateResult} GenerateResult */
/** @typedef {import("./results.js").TextPiece} TextPiece */

const NS_PER_MS = 1e6;

/**
 * Streams that nobody can read any more end their generation. Cloudflare Workers of before May
 * 2025 have no such registry.
 */
const dropped =
  typeof FinalizationRegistry === "undefined"
    ? null
    : new FinalizationRegistry(
        (/** @type {{engine: Engine, request: GenerateRequest}} */ { engine, request }) => {
          engine.abort(request);
        },
      );

/**
 * `for await (const piece of stream)` yields tokens as they come, `await stream.result()` the
 * whole, `stream.readable()` is a `ReadableStream`.
 *
 * Nothing runs before the first of them. Tokens that nobody reads wait here, at most
 * `maxTokens` of them, and hold nobody up. Leaving the loop, `close`, the signal and dropping
 * the stream all end the generation within one step.
 *
 * @implements {AsyncIterableIterator<TextPiece>}
 */
export class GenerationStream {
  #engine;
  /** @type {(() => GenerateRequest) | null} */
  #start;
  #signal;
  /** @type {GenerateRequest | null} */
  #request = null;
  /** @type {string[]} */
  #texts = [];
  /** @type {number[][]} */
  #logprobs = [];
  #reading = false;
  #over = false;
  #onAbort = () => {
    if (this.#request !== null) {
      const error = new Aborted("the generation was aborted", { cause: this.#signal?.reason });
      this.#engine.abort(this.#request, error);
    }
  };

  /**
   * @param {Engine} engine runs it
   * @param {() => GenerateRequest} start submits it; called once
   * @param {AbortSignal} [signal] ends it
   */
  constructor(engine, start, signal) {
    this.#engine = engine;
    this.#start = start;
    this.#signal = signal;
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /**
   * The next piece of any sample.
   *
   * @returns {Promise<IteratorResult<TextPiece, undefined>>}
   * @throws {VoleryError} why the generation failed; earlier pieces have been given by then
   */
  async next() {
    if (this.#over) return { done: true, value: undefined };
    if (this.#reading) throw new InvalidInput("the stream is being read by another caller");
    this.#reading = true;
    try {
      const request = this.#begin();
      if (request === null) return { done: true, value: undefined };
      for (;;) {
        const sample = request.samples.find((s) => s.fresh.length > 0);
        if (sample !== undefined) return { done: false, value: this.#piece(request, sample) };
        if (request.done.settled) {
          this.#end();
          await request.done.promise; // throws why it failed
          return { done: true, value: undefined };
        }
        await request.changed();
        if (this.#over) return { done: true, value: undefined };
      }
    } finally {
      this.#reading = false;
    }
  }

  /** Leaving the loop. */
  async return() {
    this.close();
    return { done: /** @type {const} */ (true), value: undefined };
  }

  /**
   * Wait for the end, and return everything, pieces that were read included.
   *
   * @returns {Promise<GenerateResult>}
   */
  async result() {
    // Not `for await`, which would close the stream
    while (!(await this.next()).done);
    const request = this.#request;
    if (request === null || !request.done.settled) {
      throw new Aborted("the stream was closed before its end; call the model again");
    }
    await request.done.promise;
    const { options, samples, prompt } = request;
    const completions = samples.map((sample) => this.#completion(request, sample));
    const firstNs = Math.min(...samples.map((sample) => sample.firstNs));
    return {
      text: completions[0].text,
      finishReason: completions[0].finishReason,
      completions,
      usage: {
        promptTokens: prompt.length,
        cachedTokens: request.cachedTokens,
        completionTokens: samples.reduce((sum, sample) => sum + sample.tokens.length, 0),
      },
      queueMs: request.queueNs / NS_PER_MS,
      ttftMs: (firstNs - request.arrivalNs) / NS_PER_MS,
      batchSeqs: request.batchSeqs,
      batchTokens: request.batchTokens,
      seed: options.seed,
    };
  }

  /**
   * The pieces as a stream; cancelling it ends the generation.
   *
   * @returns {ReadableStream<TextPiece>}
   */
  readable() {
    return new ReadableStream(
      {
        pull: async (controller) => {
          const { done, value } = await this.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: () => this.close(),
      },
      { highWaterMark: 0 },
    );
  }

  /** End the generation now. Idempotent, and fine after the end. */
  close() {
    this.#start = null;
    this.#end();
    if (this.#request !== null) {
      this.#engine.abort(this.#request);
      this.#request.wake();
    }
  }

  #begin() {
    if (this.#request === null) {
      if (this.#start === null) return null;
      if (this.#signal?.aborted) {
        throw new Aborted("the generation was aborted", { cause: this.#signal.reason });
      }
      const start = this.#start;
      this.#start = null;
      const request = (this.#request = start());
      this.#texts = request.samples.map(() => "");
      this.#logprobs = request.samples.map(() => []);
      this.#signal?.addEventListener("abort", this.#onAbort);
      dropped?.register(this, { engine: this.#engine, request }, this);
    }
    return this.#request;
  }

  #end() {
    this.#over = true;
    this.#signal?.removeEventListener("abort", this.#onAbort);
    dropped?.unregister(this);
  }

  /**
   * @param {GenerateRequest} request
   * @param {SampleState} sample one with something new
   * @returns {TextPiece}
   */
  #piece(request, sample) {
    const { tokenId, logprob, top } = /** @type {SampleState["fresh"][0]} */ (sample.fresh.shift());
    const { index, reader } = sample;
    const { stop, topLogprobs } = request.options;
    let text = "";
    if (stop.length > 0) text = /** @type {string} */ (sample.texts.shift());
    else if (!request.stopIds.includes(tokenId)) text = reader.feed(tokenId);
    const finishReason = sample.fresh.length > 0 ? null : sample.finishReason;
    if (finishReason !== null) text += reader.flush();
    this.#texts[index] += text;
    this.#logprobs[index].push(logprob);
    return {
      text,
      tokenId,
      index,
      logprob: topLogprobs < 0 ? null : logprob,
      topLogprobs: Array.from(top.tokenIds, (id, i) => ({ tokenId: id, logprob: top.logprobs[i] })),
      finishReason,
    };
  }

  /**
   * @param {GenerateRequest} request
   * @param {SampleState} sample
   * @returns {Completion}
   */
  #completion(request, { index, tokens, finishReason, firstNs, lastNs }) {
    return {
      text: this.#texts[index],
      tokenIds: [...tokens],
      finishReason: finishReason ?? "stop",
      logprobs: request.options.topLogprobs < 0 ? null : this.#logprobs[index],
      tpotMs: tokens.length > 1 ? (lastNs - firstNs) / NS_PER_MS / (tokens.length - 1) : 0,
    };
  }
}
