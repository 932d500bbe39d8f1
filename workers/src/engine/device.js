/**
 * The device that models share: the driver of one batching core.
 *
 * The core decides, the backends compute, and this class carries messages between them.
 * Requests that are submitted in one turn of the event loop reach the core together, which
 * costs no time and lets them share a step.
 */
import {
  BatchingCore,
  LaneKind,
  StepOutcome,
  schedulerConfig,
  stepCompleted,
  tick,
} from "../batching/index.js";
import { Aborted, DeviceLost, InvalidInput, OutOfMemory, VoleryError } from "../errors.js";
import { SeqStatus } from "../step.js";
import { hostClock } from "./clock.js";
import { DecoderDriver } from "./decoder.js";

/** @typedef {import("../batching/core.js").Recorder} Recorder */
/** @typedef {import("../batching/config.js").SchedulerOptions} SchedulerOptions */
/** @typedef {import("../batching/events.js").DecoderStepScheduled} DecoderStepScheduled */
/** @typedef {import("../batching/events.js").Decision} Decision */
/** @typedef {import("../batching/events.js").Event} Event */
/** @typedef {import("../batching/events.js").RequestFinished} RequestFinished */
/** @typedef {import("../batching/events.js").StepScheduled} StepScheduled */
/** @typedef {import("../batching/lane.js").Lane} Lane */
/** @typedef {import("../step.js").StepResult} StepResult */
/** @typedef {import("./clock.js").Clock} Clock */
/** @typedef {import("./engine.js").Engine} Engine */
/** @typedef {import("./generate.js").GenerateRequest} GenerateRequest */
/** @typedef {import("./request.js").EncodeRequest} EncodeRequest */

/**
 * @typedef {object} DeviceOptions
 * @property {number} [threads] of every model's backend, and of all steps in flight
 *   together; 1 by default
 * @property {SchedulerOptions} [scheduler] knobs of the scheduler
 * @property {Recorder} [recorder] records every event and decision
 * @property {Clock} [clock]
 */

/**
 * Threads and a scheduler that several models share.
 *
 * Load models with `load(source, { device })`: their requests are scheduled together, by
 * urgency, and bulk work by device time over each model's `share`. Models come before the
 * first request, which fixes who shares the device; each may be closed at any time. Results
 * are those of a model alone.
 */
export class Device {
  /** @type {Map<number, EncodeRequest | GenerateRequest>} */
  requests = new Map();

  /** @type {BatchingCore | null} */
  #core = null;
  /** @type {Map<string, Engine>} */
  #models = new Map();
  /** @type {Map<string, Lane>} */
  #lanes = new Map();
  #nextId = 0;
  /** @type {Map<number, {model: Engine, step: StepScheduled | DecoderStepScheduled}>} */
  #steps = new Map();
  /** @type {Map<number, StepResult>} */
  #outputs = new Map();
  /** @type {Map<number, unknown>} */
  #errors = new Map();
  /** @type {Event[]} */
  #events = [];
  #flushing = false;
  /** @type {unknown} */
  #alarm = null;
  #wakeNs = -1;
  /** @type {unknown} */
  #broken = null;
  #closed = false;
  #recorder;

  /** @param {DeviceOptions} [options] */
  constructor({ threads = 1, scheduler, recorder, clock = hostClock } = {}) {
    if (!Number.isInteger(threads) || threads < 1) {
      throw new InvalidInput(`threads is ${String(threads)}, expected a whole number from 1`);
    }
    this.threads = threads;
    this.config = schedulerConfig(scheduler);
    this.clock = clock;
    this.decoder = new DecoderDriver(this.requests);
    this.#recorder = recorder;
  }

  // --- models

  /**
   * Take a model in; its lane gets a name of its own.
   *
   * @param {Engine} model
   */
  join(model) {
    this.checkJoinable();
    const base = model.spec.name;
    for (let number = 2; this.#models.has(model.spec.name); number++) {
      model.spec = { ...model.spec, name: `${base}#${number}` };
    }
    this.#models.set(model.spec.name, model);
  }

  /** @throws {InvalidInput} no model can be loaded onto the device any more */
  checkJoinable() {
    if (this.#closed) throw new InvalidInput("the device is closed; make another one");
    if (this.#core !== null) {
      throw new InvalidInput(
        "the device has begun to work; load all of its models before the first request",
      );
    }
  }

  /** The scheduler; made when it is first asked for, with the models of that moment. */
  get core() {
    if (this.#core === null) {
      const models = [...this.#models.values()];
      const specs = models.map((model) => model.spec);
      const core = new BatchingCore(specs, deviceSpec(models), this.config, this.#recorder);
      this.#lanes = new Map(core.lanes.map((lane) => [lane.spec.name, lane]));
      this.#core = core;
    }
    return this.#core;
  }

  /**
   * What the scheduler knows of a model; null before the first request.
   *
   * @param {Engine} model
   */
  lane(model) {
    return this.#lanes.get(model.spec.name) ?? null;
  }

  // --- requests

  /** A number for a new request. */
  nextId() {
    if (this.#closed) throw new Aborted("the device is closed; load the model again");
    if (this.broken) throw brokenError(this.#broken);
    return this.#nextId++;
  }

  /**
   * Hand events to the core, in this turn of the event loop.
   *
   * @param {...Event} events
   */
  post(...events) {
    this.#events.push(...events);
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => this.#flush());
  }

  /** Events that the core has not seen yet. */
  get pending() {
    return this.#events;
  }

  /**
   * A model's steps on the device now.
   *
   * @param {Engine} model
   */
  numSteps(model) {
    let count = 0;
    for (const step of this.#steps.values()) if (step.model === model) count += 1;
    return count;
  }

  /**
   * A step ended well.
   *
   * @param {number} stepId
   * @param {StepResult} result
   */
  completed(stepId, result) {
    const { model, step } = this.#running(stepId);
    model.landed(result);
    this.#outputs.set(stepId, result);
    /** @type {number[]} */
    const nonFinite = [];
    result.statuses.forEach((status, row) => {
      if (status !== SeqStatus.OK) nonFinite.push(row);
    });
    const deviceNs = Math.round(result.deviceNs);
    if (step.type === "step") {
      this.post(stepCompleted({ stepId, deviceNs, nonFinite }));
      return;
    }
    const sampled = [...(result.sampled?.tokenIds ?? [])];
    const stops = this.decoder.stops(step, result);
    this.post(stepCompleted({ stepId, deviceNs, nonFinite, sampled }), ...stops);
  }

  /**
   * A step failed.
   *
   * @param {number} stepId
   * @param {unknown} error
   */
  failed(stepId, error) {
    const { model, step } = this.#running(stepId);
    model.lost(error);
    this.#errors.set(stepId, error);
    /** @type {import("../batching/types.js").Outcome} */
    let outcome = StepOutcome.FAILED;
    if (error instanceof OutOfMemory) outcome = StepOutcome.OUT_OF_MEMORY;
    // The next step may find a new backend, so an encoder's sequences are tried again, each
    // alone. What a decoder had in its cache is gone.
    if (error instanceof DeviceLost && step.type === "decoder_step") outcome = StepOutcome.LOST;
    this.post(stepCompleted({ stepId, outcome }));
  }

  // --- the end

  /** Nothing runs on it any more. */
  get broken() {
    return this.#broken !== null;
  }

  /** Close every model on the device. Idempotent. */
  async close() {
    this.release();
    await Promise.all([...this.#models.values()].map((model) => model.close()));
    this.#setAlarm(-1);
  }

  /** No model is left on it. */
  release() {
    this.#closed = true;
    this.#setAlarm(-1);
  }

  // --- events in

  /** @param {number} stepId */
  #running(stepId) {
    const running = this.#steps.get(stepId);
    if (running === undefined) throw new VoleryError(`step ${stepId} is not on the device`);
    return running;
  }

  #flush() {
    this.#flushing = false;
    const events = this.#events;
    this.#events = [];
    if (!this.broken) {
      try {
        this.#advance(events);
      } catch (error) {
        this.#break(error);
      }
    }
    for (const event of events) {
      if (event.type !== "completed") continue;
      this.#outputs.delete(event.stepId);
      this.#errors.delete(event.stepId);
      this.#steps.delete(event.stepId);
    }
    this.#beginAnew();
    for (const model of this.#models.values()) model.changed();
  }

  /**
   * A lane whose backend died refuses everything. Once nobody is left a new scheduler takes
   * over, which knows nothing of the lost cache, and the next step finds a new backend. A
   * recording stays one life.
   */
  #beginAnew() {
    if (this.#recorder !== undefined || this.requests.size > 0 || this.#steps.size > 0) return;
    if (![...this.#lanes.values()].some((lane) => lane.lost)) return;
    this.#setAlarm(-1);
    this.#core = null;
    this.#lanes = new Map();
  }

  /**
   * Let the core decide, and carry its decisions out.
   *
   * @param {Event[]} events
   */
  #advance(events) {
    const nowNs = this.clock.nowNs();
    for (const decision of this.core.handleAll(events, nowNs)) this.#carryOut(decision, nowNs);
  }

  /**
   * @param {Decision} decision
   * @param {number} nowNs
   */
  #carryOut(decision, nowNs) {
    switch (decision.type) {
      case "token":
        return this.decoder.emit(decision, this.#output(decision.stepId), nowNs);
      case "step":
      case "decoder_step": {
        const model = /** @type {Engine} */ (this.#models.get(decision.lane));
        this.#steps.set(decision.stepId, { model, step: decision });
        return model.start(decision);
      }
      case "sample":
        return this.decoder.finish(decision);
      case "ready": {
        const request = /** @type {EncodeRequest} */ (this.requests.get(decision.requestId));
        const { shape } = this.#running(decision.stepId).step;
        return request.take(decision, this.#output(decision.stepId), shape);
      }
      case "finished": {
        const request = this.requests.get(decision.requestId);
        if (request === undefined) return;
        const model = /** @type {Engine} */ (this.#models.get(request.lane));
        model.finish(request, decision, this.#errors.get(decision.stepId));
        this.requests.delete(decision.requestId);
        return;
      }
      case "idle":
        return this.#setAlarm(decision.wakeAtNs);
    }
  }

  /** @param {number} stepId */
  #output(stepId) {
    return /** @type {StepResult} */ (this.#outputs.get(stepId));
  }

  /**
   * A recorder that fails, or a bug: nobody may wait for ever because of it.
   *
   * @param {unknown} error
   */
  #break(error) {
    this.#broken = error;
    for (const request of this.requests.values()) request.fail(brokenError(error));
    this.requests.clear();
    this.#setAlarm(-1);
  }

  /** @param {number} wakeNs */
  #setAlarm(wakeNs) {
    if (this.#alarm !== null) {
      if (wakeNs === this.#wakeNs) return;
      this.clock.cancel(this.#alarm);
      this.#alarm = null;
    }
    this.#wakeNs = wakeNs;
    if (wakeNs < 0) return;
    this.#alarm = this.clock.wake(
      () => {
        this.#alarm = null;
        this.post(tick());
      },
      Math.max(wakeNs - this.clock.nowNs(), 0),
    );
  }
}

/**
 * What every one of `models` can take: a step never has more threads than any of their
 * pools. A decoder takes one step at a time whatever the device allows.
 *
 * @param {readonly Engine[]} models
 * @returns {import("../batching/types.js").DeviceSpec}
 */
function deviceSpec(models) {
  const threads = Math.min(...models.map((model) => model.threads));
  const encoders = models.filter((model) => model.spec.kind === LaneKind.ENCODER);
  const steps =
    encoders.length > 0
      ? Math.min(...encoders.map((model) => model.concurrentSteps))
      : models.length;
  const stepThreads = Math.min(...models.map((model) => model.stepThreads));
  return {
    threads,
    concurrentSteps: models.length > 1 ? Math.min(steps, threads) : steps,
    stepThreads: stepThreads < threads ? stepThreads : 0,
  };
}

/** @param {unknown} error */
function brokenError(error) {
  return new VoleryError(`the engine cannot go on (${error}); load the model again`, {
    cause: error,
  });
}
