/** Running generations and answering with them, whole or piece by piece. */
import { failureOf } from "./errors.js";
import { eventStream } from "./sse.js";

/** @typedef {import("../generation/results.js").GenerateResult} GenerateResult */
/** @typedef {import("../generation/results.js").TextPiece} TextPiece */
/** @typedef {import("../generation/stream.js").GenerationStream} GenerationStream */
/** @typedef {import("../model.js").Model} Model */
/** @typedef {import("./call.js").Call} Call */
/** @typedef {import("./shapes.js").Shape} Shape */

/**
 * @typedef {object} Generation
 * @property {string} name of the model, as the client knows it
 * @property {Model} model
 * @property {readonly GenerationStream[]} streams one per prompt, of `n` samples each
 * @property {number} n
 * @property {Shape} shape
 * @property {boolean} hasLogprobs they were asked for
 * @property {{stream: boolean, includeUsage: boolean}} delivery
 */

/**
 * @param {Call} call
 * @param {Generation} generation
 * @returns {Promise<Response>}
 */
export async function answer(call, generation) {
  const { streams, delivery } = generation;
  const close = () => streams.forEach((stream) => stream.close());
  if (!delivery.stream) {
    try {
      return Response.json(await whole(call, generation));
    } finally {
      close();
    }
  }
  // Up to its first token a generation can fail with a status of HTTP
  const events = chunks(call, generation);
  const first = await events.next();
  return eventStream(
    (async function* () {
      if (!first.done) yield first.value;
      yield* events;
    })(),
    {
      failure: (error) => ({ error: failureOf(error, false).error }),
      close,
      ended: call.ended,
    },
  );
}

/**
 * @param {Call} call
 * @param {Generation} generation
 */
async function whole(call, generation) {
  const { model, streams, n, shape, hasLogprobs } = generation;
  const results = await Promise.all(
    streams.map(async (stream) => {
      /** @type {TextPiece[][]} */
      const pieces = Array.from({ length: n }, () => []);
      if (hasLogprobs) {
        for (let got = await stream.next(); !got.done; got = await stream.next()) {
          pieces[got.value.index].push(got.value);
        }
      }
      return { pieces, result: await stream.result() };
    }),
  );
  const textOf = (/** @type {number} */ id) => model.tokenText(id);
  return {
    ...head(generation, shape.whole),
    choices: results.flatMap(({ pieces, result }, prompt) =>
      result.completions.map(({ text, finishReason }, i) => {
        const logprobs = hasLogprobs ? shape.logprobs(pieces[i], textOf, 0) : null;
        return shape.choice(prompt * n + i, text, finishReason, logprobs);
      }),
    ),
    ...tail(
      call,
      generation,
      results.map(({ result }) => result),
    ),
  };
}

/**
 * @param {Call} call
 * @param {Generation} generation
 */
async function* chunks(call, generation) {
  const { model, streams, n, shape, hasLogprobs, delivery } = generation;
  const textOf = (/** @type {number} */ id) => model.tokenText(id);
  const common = head(generation, shape.chunk);
  const usage = delivery.includeUsage ? { usage: null } : {};
  /** Characters of every choice that begun. @type {Map<number, number>} */
  const lengths = new Map();
  try {
    for await (const { from, piece } of merged(streams)) {
      const { text, finishReason } = piece;
      const index = from * n + piece.index;
      if (!lengths.has(index)) {
        lengths.set(index, 0);
        const opening = shape.opening(index);
        if (opening) yield { ...common, choices: [opening], ...usage };
      }
      const length = lengths.get(index) ?? 0;
      lengths.set(index, length + text.length);
      // Nothing to tell while a character or a possible stop string is incomplete
      if (text === "" && finishReason === null && !hasLogprobs) continue;
      const logprobs = hasLogprobs ? shape.logprobs([piece], textOf, length) : null;
      yield { ...common, choices: [shape.delta(index, text, finishReason, logprobs)], ...usage };
    }
    const results = await Promise.all(streams.map((stream) => stream.result()));
    const last = tail(call, generation, results);
    if (delivery.includeUsage) yield { ...common, choices: [], ...last };
  } finally {
    streams.forEach((stream) => stream.close());
  }
}

/**
 * Pieces of several streams as they come.
 *
 * @param {readonly GenerationStream[]} streams
 * @returns {AsyncGenerator<{from: number, piece: TextPiece}>}
 */
async function* merged(streams) {
  const next = async (/** @type {number} */ from) => ({ from, got: await streams[from].next() });
  const waiting = new Map(streams.map((_, from) => [from, next(from)]));
  while (waiting.size > 0) {
    const { from, got } = await Promise.race(waiting.values());
    if (got.done) {
      waiting.delete(from);
      continue;
    }
    waiting.set(from, next(from));
    yield { from, piece: got.value };
  }
}

/**
 * @param {Generation} generation
 * @param {string} object
 */
function head({ name, model, shape }, object) {
  return {
    id: shape.prefix + crypto.randomUUID().replaceAll("-", ""),
    object,
    created: Math.floor(Date.now() / 1000),
    model: name,
    system_fingerprint: `volery-${model.info.quantization}`,
  };
}

/**
 * Usage and facts, once all is over.
 *
 * @param {Call} call
 * @param {Generation} generation
 * @param {readonly GenerateResult[]} results
 */
function tail(call, { name }, results) {
  const sum = (/** @type {(result: GenerateResult) => number} */ value) =>
    results.reduce((total, result) => total + value(result), 0);
  const most = (/** @type {(result: GenerateResult) => number} */ value) =>
    Math.max(...results.map(value));
  const prompt = sum(({ usage }) => usage.promptTokens);
  const completion = sum(({ usage }) => usage.completionTokens);
  for (const result of results) call.metrics.generated(name, result);
  const [{ seed }] = results;
  return {
    usage: {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
      prompt_tokens_details: { cached_tokens: sum(({ usage }) => usage.cachedTokens) },
    },
    volery: {
      queue_ms: most(({ queueMs }) => queueMs),
      ttft_ms: most(({ ttftMs }) => ttftMs),
      batch_seqs: most(({ batchSeqs }) => batchSeqs),
      batch_tokens: most(({ batchTokens }) => batchTokens),
      ...(results.length === 1 && { seed: typeof seed === "bigint" ? String(seed) : seed }),
    },
  };
}
