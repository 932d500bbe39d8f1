/** One model's requests on a device. */
import {
  FinishReason,
  generationArrived,
  requestAborted,
  requestArrived,
} from "../batching/index.js";
import { DecoderLane } from "../batching/decoder-lane.js";
import { Aborted, DeviceLost } from "../errors.js";
import { Deferred } from "./deferred.js";
import { GenerateRequest } from "./generate.js";
import { contextOf, laneOf } from "./lanes.js";
import { EncodeRequest } from "./request.js";
import { Room } from "./room.js";
import { Counters } from "./stats.js";

/** @typedef {import("../batching/events.js").DecoderStepScheduled} DecoderStepScheduled */
/** @typedef {import("../batching/events.js").RequestFinished} RequestFinished */
/** @typedef {import("../batching/events.js").StepScheduled} StepScheduled */
/** @typedef {import("../batching/types.js").CostProfile} CostProfile */
/** @typedef {import("../batching/types.js").Traffic} Traffic */
/** @typedef {import("../generation/options.js").GenerateOptions} GenerateOptions */
/** @typedef {import("../generation/text.js").Decode} Decode */
/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepResult} StepResult */
/** @typedef {import("./device.js").Device} Device */
/** @typedef {import("./stats.js").EngineStats} EngineStats */

/**
 * What runs steps: a model of `loadModel`.
 *
 * @typedef {object} Backend
 * @property {(step: Step, options: {threads: number}) => Promise<StepResult>} run
 * @property {() => Promise<void>} close
 * @property {{limits: import("../step.js").StepLimits, threads: number, concurrency: number}}
 *   info
 */

/**
 * @typedef {object} EngineOptions
 * @property {number} width columns of an encoder's output row
 * @property {CostProfile} profile where the cost model starts
 * @property {number} [maxContext] of a decoder, the most tokens of a sequence; 0 = what its
 *   cache holds
 * @property {Device} device where it runs
 * @property {boolean} [alone] no other model comes to the device, which is closed with it
 * @property {string} [name] of the model, on a shared device
 * @property {number} [share] weight of the model's bulk work against other models'
 */

/** Runs requests of one model, batched, on one backend. */
export class Engine {
  #backend;
  #device;
  #alone;
  #width;
  #counters = new Counters();
  #room;
  /** @type {Deferred<void> | null} */
  #quiet = null;
  /** @type {DeviceLost | null} */
  #lost = null;
  /** Requests in the core. */
  #numRequests = 0;
  /** Those of them that it has yet to be rid of. */
  #numAborted = 0;
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * @param {Backend} backend closed with the engine
   * @param {EngineOptions} options
   */
  constructor(backend, { width, profile, maxContext, device, alone = true, name, share }) {
    const { limits, threads, concurrency } = backend.info;
    /** Most threads of a step. */
    this.stepThreads = threads;
    /** Steps that may be on the device at once. */
    this.concurrentSteps = concurrency;
    /** Of the pool: where they share no memory, each runs steps of its own. */
    this.threads = Math.max(threads, concurrency);
    this.spec = laneOf(limits, { profile, maxContext, model: name, share });
    this.#backend = backend;
    this.#width = width;
    this.#device = device;
    this.#alone = alone;
    this.#room = new Room((numSeqs, traffic) => this.#hasRoom(numSeqs, traffic));
    device.join(this);
  }

  // --- requests

  /**
   * Queue sequences; they start when the device has room.
   *
   * @param {readonly (readonly number[])[]} tokenIds one or more sequences of at least one
   *   token
   * @param {object} options
   * @param {readonly number[] | null} [options.poolSkips] leading tokens of each that
   *   pooling leaves out
   * @param {Traffic} options.traffic
   * @param {number} [options.deadlineNs] on the engine's clock; -1 = never
   * @param {number} [options.latencyTargetNs] as in `RequestArrived`
   * @param {string} [options.tenant] as in `RequestArrived`
   * @param {number} [options.firstIndex] of the first sequence in the caller's list
   * @returns {EncodeRequest}
   * @throws {Aborted} the engine is closed
   */
  submit(tokenIds, { poolSkips = null, firstIndex = 0, ...scheduling }) {
    const requestId = this.#newId();
    const lane = this.spec.name;
    const arrivalNs = this.nowNs();
    const width = this.#width;
    const fields = { requestId, lane, tokenIds, poolSkips, width, arrivalNs, firstIndex };
    const request = new EncodeRequest(fields);
    this.#begin(request);
    const numTokens = tokenIds.map((ids) => ids.length);
    this.#device.post(requestArrived({ requestId, lane, numTokens, ...scheduling }));
    return request;
  }

  /**
   * Queue a prompt; its tokens arrive in the request as they are made.
   *
   * @param {readonly number[]} prompt ids, at least one
   * @param {object} call
   * @param {GenerateOptions} call.options
   * @param {readonly number[]} call.stopIds ids that end a sample
   * @param {Decode} call.decode ids to text, for stop strings and streams
   * @param {Traffic} call.traffic
   * @param {number} [call.deadlineNs] on the engine's clock; -1 = never
   * @param {number} [call.ttftTargetNs] as in `GenerationArrived`
   * @param {number} [call.tpotTargetNs] as in `GenerationArrived`
   * @param {string} [call.tenant] as in `GenerationArrived`
   * @param {string} [call.salt] namespace of the prefix cache
   * @returns {GenerateRequest}
   * @throws {Aborted} the engine is closed
   */
  generate(prompt, { options, stopIds, decode, ...scheduling }) {
    const requestId = this.#newId();
    const lane = this.spec.name;
    const arrivalNs = this.nowNs();
    const fields = { requestId, lane, prompt, options, stopIds, decode, arrivalNs };
    const request = new GenerateRequest(fields);
    this.#begin(request);
    const { maxTokens, n: samples } = options;
    const event = { requestId, lane, tokens: prompt, maxTokens, stopIds, samples, ...scheduling };
    this.#device.post(generationArrived(event));
    return request;
  }

  /**
   * End `request` now; its owner gets `error`, or else `Aborted`. Idempotent.
   *
   * @param {EncodeRequest | GenerateRequest} request
   * @param {unknown} [error]
   */
  abort(request, error) {
    if (request.aborted || this.#device.requests.get(request.requestId) !== request) return;
    request.aborted = true;
    this.#numAborted += 1;
    this.#device.post(requestAborted(request.requestId));
    request.fail(error ?? new Aborted("the request was cancelled, or its model was closed"));
  }

  /**
   * Wait until the queue would take `numSeqs` more sequences of this class.
   *
   * @param {number} numSeqs
   * @param {Traffic} traffic
   * @param {AbortSignal} [signal]
   * @throws {Aborted} the engine was closed meanwhile
   */
  async waitForRoom(numSeqs, traffic, signal) {
    await this.#room.wait(numSeqs, traffic, signal);
    if (this.#closing !== null) throw closedError();
  }

  /** Most sequences that a single request can ever bring. */
  get maxQueueSize() {
    const { latency, throughput } = this.#device.config;
    return Math.min(latency.maxQueueSize, throughput.maxQueueSize);
  }

  /** Most tokens of a decoder's sequence; 0 for an encoder. */
  get maxContext() {
    return contextOf(this.spec);
  }

  /** The engine's clock. */
  nowNs() {
    return this.#device.clock.nowNs();
  }

  // --- the end

  /**
   * Stop, and close the backend. Idempotent; later calls wait for the first.
   *
   * @param {{drain?: boolean}} [options] drain: finish what was submitted; otherwise it ends
   *   with `Aborted`. Steps on the device are always waited for
   * @returns {Promise<void>}
   */
  close({ drain = false } = {}) {
    if (this.#closing === null) {
      this.#closing = this.#close(drain);
      this.#room.end();
    }
    return this.#closing;
  }

  /** @param {boolean} drain */
  async #close(drain) {
    const device = this.#device;
    if (!drain) {
      for (const request of device.requests.values()) {
        if (request.lane === this.spec.name) this.abort(request);
      }
    }
    while (!this.#isQuiet()) {
      this.#quiet = new Deferred();
      await this.#quiet.promise;
    }
    await this.#backend.close();
    if (this.#alone) device.release();
  }

  /** Nothing of this model is in the core or on the device. */
  #isQuiet() {
    const device = this.#device;
    return device.numSteps(this) === 0 && (device.broken || this.#numRequests === 0);
  }

  /**
   * Queue, batches and prediction quality, now and since the start.
   *
   * @returns {EngineStats}
   */
  stats() {
    const device = this.#device;
    const lane = device.lane(this);
    const residents = lane instanceof DecoderLane ? lane.residents : null;
    const { finished, steps, seqs, tokens, batchSizes, deviceNs } = this.#counters;
    const rate = lane?.arrivals.inWindow(device.clock.nowNs()) ?? 0;
    return {
      queuedSeqs: lane?.queue.numSeqs ?? 0,
      queuedTokens: lane?.queue.numTokens ?? 0,
      runningSteps: device.numSteps(this),
      requests: device.broken ? 0 : this.#numRequests - this.#numAborted,
      finished: Object.fromEntries(finished),
      steps,
      seqs,
      tokens,
      meanBatchSeqs: steps > 0 ? seqs / steps : 0,
      batchSizes: Object.fromEntries(batchSizes),
      deviceMs: deviceNs / 1e6,
      predictionError: lane?.cost.error ?? 0,
      predictionErrors: Object.fromEntries(lane?.predictions.predictionErrors ?? []),
      arrivalsPerS: (rate * 1000) / device.config.arrivalWindowMs,
      lateCompletions: lane === null ? 0 : device.core.stats.lateCompletions,
      runningSeqs: residents?.running.length ?? 0,
      recomputedTokens: residents?.recomputed ?? 0,
      kv: residents?.kv.stats ?? null,
    };
  }

  // --- what the device tells

  /**
   * Run a step of this model's lane.
   *
   * @param {StepScheduled | DecoderStepScheduled} scheduled
   */
  start(scheduled) {
    const { stepId, shape } = scheduled;
    this.#counters.scheduled(shape);
    const step = scheduled.type === "step" ? this.#encode(scheduled) : this.#decode(scheduled);
    this.#backend.run(step, { threads: shape.threads }).then(
      (result) => this.#device.completed(stepId, result),
      (error) => this.#device.failed(stepId, error),
    );
  }

  /**
   * A step of this model's lane ended well.
   *
   * @param {StepResult} result
   */
  landed(result) {
    this.#counters.deviceNs += result.deviceNs;
  }

  /**
   * A step of this model's lane failed.
   *
   * @param {unknown} error
   */
  lost(error) {
    if (error instanceof DeviceLost) this.#lost = error;
  }

  /**
   * The end of one of this model's requests.
   *
   * @param {EncodeRequest | GenerateRequest} request
   * @param {RequestFinished} finished
   * @param {unknown} cause what the step to blame threw
   */
  finish(request, finished, cause) {
    this.#numRequests -= 1;
    if (request.aborted) this.#numAborted -= 1;
    this.#counters.ended(finished.reason);
    if (finished.reason === FinishReason.DONE) request.finish();
    else request.fail(request.errorOf(finished, finished.stepId < 0 ? this.#lost : cause));
  }

  /** The core has taken something in: there may be room, or nothing left to do. */
  changed() {
    if (this.#device.broken) this.#room.end();
    else this.#room.wake();
    if (this.#quiet !== null && !this.#quiet.settled && this.#isQuiet()) this.#quiet.resolve();
  }

  /**
   * @param {StepScheduled} scheduled
   * @returns {Step}
   */
  #encode({ seqs, shape }) {
    const tokenIds = new Int32Array(shape.numTokens);
    const nowNs = this.nowNs();
    let firstToken = 0;
    const rows = seqs.map(({ requestId, item, numTokens }) => {
      const request = /** @type {EncodeRequest} */ (this.#device.requests.get(requestId));
      tokenIds.set(request.tokenIds[item], firstToken);
      const row = { firstToken, numTokens, poolSkip: request.poolSkips?.[item] ?? 0 };
      firstToken += numTokens;
      if (request.queueNs < 0) request.queueNs = nowNs - request.arrivalNs;
      return row;
    });
    return { tokenIds, seqs: rows };
  }

  /**
   * @param {DecoderStepScheduled} scheduled
   * @returns {Step}
   */
  #decode(scheduled) {
    const { step, failed } = this.#device.decoder.step(scheduled, this.nowNs());
    for (const [request, error] of failed) this.abort(request, error);
    return step;
  }

  #newId() {
    if (this.#closing !== null) throw closedError();
    return this.#device.nextId();
  }

  /** @param {EncodeRequest | GenerateRequest} request */
  #begin(request) {
    this.#device.requests.set(request.requestId, request);
    this.#numRequests += 1;
  }

  /**
   * @param {number} numSeqs
   * @param {Traffic} traffic
   */
  #hasRoom(numSeqs, traffic) {
    let coming = numSeqs;
    for (const event of this.#device.pending) {
      if (event.type === "arrived" && event.lane === this.spec.name) {
        coming += event.numTokens.length;
      }
    }
    const lane = this.#device.lane(this);
    return lane === null ? coming <= this.maxQueueSize : lane.queue.of(traffic).hasRoom(coming);
  }
}

export const closedError = () => new Aborted("the model is closed; load it again");
