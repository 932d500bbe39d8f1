/** `GET /metrics`: what requests took, and what the models' schedulers tell. */
import { Counter, Family, Histogram } from "./prometheus.js";

/** @typedef {import("../engine/stats.js").EngineStats} EngineStats */
/** @typedef {import("../generation/results.js").GenerateResult} GenerateResult */
/** @typedef {import("./models.js").Models} Models */

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const STEP_SEQS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** @typedef {["counter" | "gauge", string, (stats: EngineStats) => number, string]} Row */

/** Type, name after "volery_", value, help. @type {readonly Row[]} */
const ENGINE = [
  ["gauge", "queued_sequences", (s) => s.queuedSeqs, "Sequences that wait."],
  ["gauge", "queued_tokens", (s) => s.queuedTokens, "Tokens that wait."],
  ["gauge", "running_sequences", (s) => s.runningSeqs, "Sequences that hold cache blocks."],
  ["gauge", "running_steps", (s) => s.runningSteps, "Steps on the device."],
  ["gauge", "requests", (s) => s.requests, "Requests that wait or run."],
  ["gauge", "arrivals_per_second", (s) => s.arrivalsPerS, "Sequences that arrived lately."],
  ["gauge", "cost_error_ratio", (s) => s.predictionError, "Error of the cost model, lately."],
  ["counter", "steps_total", (s) => s.steps, "Steps that were scheduled."],
  ["counter", "step_tokens_total", (s) => s.tokens, "Tokens in all steps."],
  ["counter", "device_seconds_total", (s) => s.deviceMs / 1000, "Time of all steps."],
  ["counter", "late_steps_total", (s) => s.lateCompletions, "Steps that nobody wanted any more."],
  ["counter", "recomputed_tokens_total", (s) => s.recomputedTokens, "Computed twice."],
];

/** @typedef {NonNullable<EngineStats["kv"]>} KVStats */

/** The same of a key-value cache. @type {readonly ["counter" | "gauge", string, (kv: KVStats) => number, string][]} */
const CACHE = [
  ["gauge", "blocks", (kv) => kv.numBlocks, "Blocks of the key-value cache."],
  ["gauge", "free_blocks", (kv) => kv.freeBlocks, "Blocks that no sequence holds."],
  ["gauge", "cached_blocks", (kv) => kv.cachedBlocks, "Blocks that hold a known prefix."],
  ["counter", "queried_tokens_total", (kv) => kv.queriedTokens, "Tokens looked up."],
  ["counter", "hit_tokens_total", (kv) => kv.cachedTokens, "Tokens that were found."],
  ["counter", "evicted_blocks_total", (kv) => kv.evictedBlocks, "Prefixes that were dropped."],
  ["counter", "preemptions_total", (kv) => kv.preemptions, "Sequences that lost their blocks."],
];

/** What one handler counts. */
export class Metrics {
  #requests = new Counter("volery_http_requests_total", "Answers by route and status.");
  #duration = new Histogram(
    "volery_http_request_duration_seconds",
    "From a request's arrival to the end of its answer.",
    SECONDS,
  );
  #queue = new Histogram("volery_queue_seconds", "From a call to its first step.", SECONDS);
  #ttft = new Histogram(
    "volery_time_to_first_token_seconds",
    "From a call to its first token.",
    SECONDS,
  );
  #tpot = new Histogram(
    "volery_time_per_output_token_seconds",
    "Mean time between a sample's tokens.",
    SECONDS,
  );
  #texts = new Counter("volery_embedded_texts_total", "Texts that were embedded.");
  #prompt = new Counter("volery_prompt_tokens_total", "Tokens that came in.");
  #completion = new Counter("volery_completion_tokens_total", "Tokens that were generated.");
  #inFlight = 0;

  /** A request came. */
  began() {
    this.#inFlight += 1;
  }

  /**
   * Its answer is over.
   *
   * @param {string} route
   * @param {number} status
   * @param {number} ms it took
   */
  ended(route, status, ms) {
    this.#inFlight -= 1;
    this.#requests.add({ route, status: String(status) });
    this.#duration.observe({ route }, ms / 1000);
  }

  /**
   * @param {string} model
   * @param {{texts: number, tokens: number, queueMs: number}} facts
   */
  embedded(model, { texts, tokens, queueMs }) {
    this.#texts.add({ model }, texts);
    this.#prompt.add({ model }, tokens);
    this.#queue.observe({ model }, queueMs / 1000);
  }

  /**
   * @param {string} model
   * @param {GenerateResult} result
   */
  generated(model, { usage, queueMs, ttftMs, completions }) {
    this.#prompt.add({ model }, usage.promptTokens);
    this.#completion.add({ model }, usage.completionTokens);
    this.#queue.observe({ model }, queueMs / 1000);
    this.#ttft.observe({ model }, ttftMs / 1000);
    for (const { tokenIds, tpotMs } of completions) {
      if (tokenIds.length > 1) this.#tpot.observe({ model }, tpotMs / 1000);
    }
  }

  /**
   * Everything, in Prometheus' text format.
   *
   * @param {Models} models
   */
  text(models) {
    const own = [this.#requests, this.#duration, this.#queue, this.#ttft, this.#tpot];
    const inFlight = new Family("volery_http_requests_in_flight", "gauge", "Requests right now.");
    return [
      ...[...own, this.#texts, this.#prompt, this.#completion],
      inFlight.add({}, this.#inFlight),
      ...engineFamilies(models),
    ].join("");
  }
}

/**
 * @param {Models} models
 * @returns {Family[]}
 */
function engineFamilies(models) {
  const up = new Family("volery_model_loaded", "gauge", "Whether the model is loaded.");
  const sizes = new Family("volery_step_sequences", "histogram", "Sequences per step.");
  const finished = new Family("volery_finished_total", "counter", "Requests by how they ended.");
  const engine = ENGINE.map(([type, name, , help]) => new Family(`volery_${name}`, type, help));
  const cache = CACHE.map(([type, name, , help]) => new Family(`volery_kv_${name}`, type, help));
  for (const served of models.all) {
    const labels = { model: served.name };
    up.add(labels, served.model === null ? 0 : 1);
    if (served.model === null) continue;
    const stats = served.model.stats();
    ENGINE.forEach(([, , value], i) => engine[i].add(labels, value(stats)));
    sizes.addHistogram(labels, stepSizes(stats.batchSizes), stats.seqs);
    for (const [reason, count] of Object.entries(stats.finished)) {
      finished.add({ ...labels, reason }, count);
    }
    const { kv } = stats;
    if (kv !== null) CACHE.forEach(([, , value], i) => cache[i].add(labels, value(kv)));
  }
  return [up, ...engine, sizes, finished, ...cache];
}

/**
 * @param {Record<number, number>} batchSizes sequences in a step -> such steps
 * @returns {[number, number][]} bound -> such steps
 */
function stepSizes(batchSizes) {
  /** @type {[number, number][]} */
  const buckets = [...STEP_SEQS, Infinity].map((bound) => [bound, 0]);
  for (const [size, steps] of Object.entries(batchSizes)) {
    const bucket = buckets.find(([bound]) => Number(size) <= bound);
    if (bucket) bucket[1] += steps;
  }
  return buckets;
}
