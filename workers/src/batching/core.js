/** The batching core: events in, decisions out, time as an integer. */
import { InvalidInput } from "../errors.js";
import { TimeoutAction, schedulerConfig } from "./config.js";
import { DecoderLane } from "./decoder-lane.js";
import { DecoderResults } from "./decoder-results.js";
import { EncoderResults } from "./encoder-results.js";
import { Generation } from "./generation.js";
import { EncoderLane } from "./lane.js";
import { Request } from "./request.js";
import { Scheduler } from "./scheduler.js";
import { CoreStats } from "./stats.js";
import {
  DEFAULT_DEVICE,
  FinishReason,
  LaneKind,
  MAX_NS,
  NS_PER_MS,
  StepOutcome,
  TrafficClass,
} from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./events.js").Decision} Decision */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").StepCompleted} StepCompleted */
/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./types.js").DeviceSpec} DeviceSpec */
/** @typedef {import("./types.js").LaneSpec} LaneSpec */
/** @typedef {import("./types.js").Reason} Reason */

/**
 * Sees everything that goes in and comes out; see `trace.js`.
 *
 * @typedef {object} Recorder
 * @property {(lanes: readonly LaneSpec[], device: DeviceSpec, config: SchedulerConfig) => void}
 *   start
 * @property {(events: readonly Event[], nowNs: number, decisions: readonly Decision[]) => void}
 *   record
 */

/** A deterministic state machine; the same calls give the same decisions. */
export class BatchingCore {
  stats = new CoreStats();

  #byName;
  #decoder;
  #encoder;
  /** @type {Map<number, Request>} */
  #requests = new Map();
  #nextSeq = 0;
  #nowNs = 0;
  /** @type {Decision[]} */
  #out = [];
  #recorder;

  /**
   * @param {readonly LaneSpec[]} lanes the models that share the device
   * @param {DeviceSpec} [device] its threads and how many steps it runs at once
   * @param {Readonly<SchedulerConfig>} [config] the knobs
   * @param {Recorder} [recorder] sees every call, for replay
   */
  constructor(lanes, device = DEFAULT_DEVICE, config = schedulerConfig(), recorder) {
    this.device = device;
    this.config = config;
    const { threads, concurrentSteps, stepThreads = 0 } = device;
    if (!(threads >= 1 && concurrentSteps >= 1 && stepThreads >= 0)) {
      throw new InvalidInput(
        `device is ${JSON.stringify(device)}, expected at least one thread and step, stepThreads from 0`,
      );
    }
    /** @type {readonly Lane[]} */
    this.lanes = lanes.map((spec) => laneOf(spec, config));
    this.#byName = new Map(lanes.map((spec, i) => [spec.name, i]));
    if (lanes.length === 0 || this.#byName.size !== lanes.length) {
      throw new InvalidInput("a core needs one or more lanes with different names");
    }
    this.scheduler = new Scheduler(this.lanes, device);
    this.#decoder = new DecoderResults((...args) => this.#finish(...args));
    this.#encoder = new EncoderResults((...args) => this.#finish(...args));
    this.#recorder = recorder;
    recorder?.start(lanes, device, config);
  }

  /** Requests that have not ended. */
  get numRequests() {
    return this.#requests.size;
  }

  /**
   * Take in one event at `nowNs` and decide.
   *
   * @param {Event} event
   * @param {number} nowNs
   */
  handle(event, nowNs) {
    return this.handleAll([event], nowNs);
  }

  /**
   * Take in events that happened together, in order, and decide once. Requests that arrive
   * in one call can share their first step.
   *
   * @param {readonly Event[]} events what happened
   * @param {number} nowNs the present; time that runs backwards stands still
   * @returns {Decision[]} in the order to carry them out; the last one is `Idle`
   * @throws {InvalidInput} an event that no driver may send: a request id that is in use, an
   *   unknown lane, a time beyond 2**52
   */
  handleAll(events, nowNs) {
    if (!Number.isInteger(nowNs) || nowNs < 0 || nowNs > MAX_NS) {
      throw new InvalidInput(`nowNs is ${String(nowNs)}, expected 0 to ${MAX_NS}`);
    }
    nowNs = this.#nowNs = Math.max(nowNs, this.#nowNs);
    /** @type {Decision[]} */
    const out = (this.#out = []);
    for (const event of events) this.#take(event, nowNs);
    for (const lane of this.lanes) {
      const { queue } = lane;
      for (let r = queue.popAlarm(nowNs); r !== null; r = queue.popAlarm(nowNs)) {
        this.#lookAt(r, lane, nowNs);
      }
      this.#shedHeads(lane, nowNs);
    }
    for (const step of this.scheduler.schedule(nowNs)) {
      this.stats.started(step.shape.numSeqs, step.shape.numTokens);
      out.push(step);
    }
    out.push({ type: "idle", wakeAtNs: this.#nextAlarm() });
    this.#recorder?.record(events, nowNs, out);
    return out;
  }

  /**
   * @param {Event} event
   * @param {number} nowNs
   */
  #take(event, nowNs) {
    switch (event.type) {
      case "arrived":
        return this.#arrived(event, nowNs);
      case "completed":
        return this.#completed(event, nowNs);
      case "generate":
        return this.#generationArrived(event, nowNs);
      case "stopped":
        return this.#stopped(event);
      case "aborted": {
        const request = this.#requests.get(event.requestId);
        if (request !== undefined) this.#finish(request, FinishReason.ABORTED);
      }
    }
  }

  // --- arrivals and alarms

  /**
   * @param {{lane: string, requestId: number}} event
   * @param {import("./types.js").Kind} kind
   */
  #laneFor(event, kind) {
    const index = this.#byName.get(event.lane);
    if (index === undefined) {
      const names = [...this.#byName.keys()].join(", ");
      throw new InvalidInput(`unknown lane ${event.lane}, expected one of ${names}`);
    }
    if (this.lanes[index].spec.kind !== kind) {
      throw new InvalidInput(`the lane ${event.lane} is not a lane of ${kind} requests`);
    }
    if (this.#requests.has(event.requestId)) {
      throw new InvalidInput(`request id ${event.requestId} is in use`);
    }
    return index;
  }

  /**
   * @param {import("./events.js").RequestArrived} event
   * @param {number} nowNs
   */
  #arrived(event, nowNs) {
    const index = this.#laneFor(event, LaneKind.ENCODER);
    const lane = this.lanes[index];
    const { requestId, numTokens, traffic, deadlineNs, tenant } = event;
    const seq = this.#nextSeq;
    const request = new Request(requestId, numTokens, traffic, nowNs, deadlineNs, seq, tenant);
    request.lane = index;
    const targetNs = targetOf(event.latencyTargetNs, lane.config.latencyTargetMs);
    this.#enqueue(request, lane, lane.admission.longest, targetNs, nowNs);
  }

  /**
   * @param {import("./events.js").GenerationArrived} event
   * @param {number} nowNs
   */
  #generationArrived(event, nowNs) {
    const index = this.#laneFor(event, LaneKind.DECODER);
    const lane = /** @type {DecoderLane} */ (this.lanes[index]);
    if (event.maxTokens < 1 || event.samples < 1) {
      throw new InvalidInput(
        `request ${event.requestId} wants ${event.samples} samples of ${event.maxTokens} ` +
          "tokens, expected at least 1 of each",
      );
    }
    // The last token of a sequence is never computed, but must have a position
    const longest = lane.maxContext - 1;
    const room = lane.maxContext - event.tokens.length;
    const maxTokens = Math.max(Math.min(event.maxTokens, room), 1);
    const tpotNs = Math.max(targetOf(event.tpotTargetNs, lane.config.tpotTargetMs), 1);
    const request = new Generation(event, nowNs, this.#nextSeq, maxTokens, tpotNs);
    request.lane = index;
    const { maxSeqs } = lane.admission;
    if (event.samples > maxSeqs) {
      this.#nextSeq += 1;
      this.#requests.set(request.requestId, request);
      this.#finish(request, FinishReason.NEVER_FITS, -1, -1, maxSeqs);
      return;
    }
    const targetNs = targetOf(event.ttftTargetNs, lane.config.ttftTargetMs);
    this.#enqueue(request, lane, longest, targetNs, nowNs);
  }

  /**
   * Let a newcomer wait for its first step, or turn it away.
   *
   * @param {Request} request
   * @param {Lane} lane
   * @param {number} longest
   * @param {number} targetNs
   * @param {number} nowNs
   */
  #enqueue(request, lane, longest, targetNs, nowNs) {
    this.#nextSeq += 1;
    this.#requests.set(request.requestId, request);
    if (lane.lost) {
      this.#finish(request, FinishReason.DEVICE_LOST);
      return;
    }
    const { threads } = this.device;
    const queue = lane.queue.of(request.traffic);
    const rejection = lane.admission.check(request, queue, lane.cost, threads, longest, nowNs);
    if (rejection !== null) {
      this.#finish(request, rejection.reason, rejection.item, -1, rejection.value);
      return;
    }
    lane.arrived(request, targetNs, nowNs);
    if (!lane.hasWork) {
      // A lane that was idle has no claim on the time that others used meanwhile.
      const busy = this.lanes.filter((other) => other.hasWork).map((other) => other.shareNs);
      lane.shareNs = Math.max(lane.shareNs, busy.length > 0 ? Math.min(...busy) : 0);
    }
    const aloneNs = lane.aloneNs(request, threads);
    request.dueNs = request.rankNs = Math.min(nowNs + targetNs + aloneNs, MAX_NS);
    if (request.deadlineNs >= 0) {
      request.dueNs = Math.min(request.deadlineNs, MAX_NS);
      const crowded = lane.latencyNs(threads) + aloneNs > request.deadlineNs - nowNs;
      request.rankNs = Math.min(request.deadlineNs + (crowded ? aloneNs : 0), MAX_NS);
    }
    lane.queue.push(request, nowNs);
    this.#arm(request, lane, nowNs);
  }

  /**
   * Set the alarm at which `#lookAt` can have something to do.
   *
   * @param {Request} request
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #arm(request, lane, nowNs) {
    let atNs = lane.queue.timeoutNs(request);
    if (request.deadlineNs >= 0) {
      let latestNs = request.deadlineNs;
      if (request.numWaiting > 0 && lane.cost.warm) {
        latestNs -= this.#neededNs(request, lane);
      }
      latestNs = Math.max(latestNs, nowNs + 1);
      atNs = atNs < 0 ? latestNs : Math.min(atNs, latestNs);
    }
    if (atNs >= 0) lane.queue.setAlarm(request, Math.max(atNs, nowNs + 1));
  }

  /**
   * Shed a request that cannot be in time any more, or has waited too long.
   *
   * A newcomer that finds the device free runs whatever is predicted, so a cost model that
   * has become too pessimistic always gets the sample that corrects it.
   *
   * @param {Request} request
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #lookAt(request, lane, nowNs) {
    const { deadlineNs } = request;
    const waitedNs = nowNs - request.arrivalNs;
    const over = deadlineNs >= 0 && deadlineNs <= nowNs;
    if (this.#isHopeless(request, lane, nowNs) || over) {
      this.#shed(request, lane, nowNs);
      return;
    }
    const timeoutNs = lane.queue.timeoutNs(request);
    if (timeoutNs >= 0 && timeoutNs <= nowNs) {
      const { timeoutAction } = lane.queue.of(request.traffic).policy;
      if (timeoutAction === TimeoutAction.REJECT || request.traffic === TrafficClass.THROUGHPUT) {
        this.#finish(request, FinishReason.TIMEOUT, -1, -1, waitedNs);
        return;
      }
      lane.queue.demote(request, nowNs);
    }
    this.#arm(request, lane, nowNs);
  }

  /**
   * The time that the waiting items need alone, with the margin for a deadline.
   *
   * @param {Request} request
   * @param {Lane} lane
   */
  #neededNs(request, lane) {
    return lane.withMargin(lane.aloneNs(request, this.device.threads));
  }

  /**
   * @param {Request} request
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #isHopeless(request, lane, nowNs) {
    return (
      request.deadlineNs >= 0 &&
      request.numWaiting > 0 &&
      lane.cost.warm &&
      nowNs + this.#neededNs(request, lane) > request.deadlineNs
    );
  }

  /**
   * @param {Request} request
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #shed(request, lane, nowNs) {
    const neededNs = request.numWaiting > 0 ? this.#neededNs(request, lane) : 0;
    const waitedNs = nowNs - request.arrivalNs;
    this.#finish(request, FinishReason.DEADLINE, -1, -1, waitedNs, neededNs);
  }

  /**
   * Shed what would be next and cannot be in time: its alarm was set with an older model,
   * before the device slowed down. A newcomer is spared, see `#lookAt`.
   *
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #shedHeads(lane, nowNs) {
    const { latency } = lane.queue;
    for (let head = latency.head(); head !== null; head = latency.head()) {
      if (head.arrivalNs === nowNs || !this.#isHopeless(head, lane, nowNs)) return;
      this.#shed(head, lane, nowNs);
    }
  }

  #nextAlarm() {
    let { wakeNs } = this.scheduler;
    for (const lane of this.lanes) {
      const atNs = lane.queue.nextAlarm();
      if (atNs >= 0 && atNs < wakeNs) wakeNs = atNs;
    }
    return wakeNs < MAX_NS ? wakeNs : -1;
  }

  // --- completions

  /**
   * @param {StepCompleted} event
   * @param {number} nowNs
   */
  #completed(event, nowNs) {
    const step = this.scheduler.finish(event.stepId, event.deviceNs);
    if (step === null) {
      this.stats.lateCompletions += 1;
      return;
    }
    const { lane } = step;
    const { outcome } = event;
    if (outcome === StepOutcome.OK) {
      this.stats.ended(step.predictedNs, event.deviceNs);
      lane.predictions.ended(step.predictedNs, event.deviceNs);
      lane.cost.learn(step.shape, event.deviceNs);
      lane.admission.stepSucceeded();
    } else if (outcome === StepOutcome.OUT_OF_MEMORY) {
      lane.admission.outOfMemory(step.shape);
    }
    if (step.type === "decoder_step") this.#decoder.take(step, event, nowNs, this.#out);
    else this.#encoder.take(step, event, nowNs, this.#out);
    if (outcome === StepOutcome.LOST) this.#lose(lane);
  }

  /** @param {import("./events.js").SampleStopped} event */
  #stopped(event) {
    const request = this.#requests.get(event.requestId);
    if (!(request instanceof Generation)) return;
    const sample = request.samples[event.sample];
    const lane = this.lanes[request.lane];
    // Before it forks, a sample also stands for its unborn twins, and has said nothing
    if (sample?.alive && request.forked && lane instanceof DecoderLane) {
      this.#decoder.stop(lane, sample, FinishReason.STOP, this.#out);
    }
  }

  /** @param {Lane} lane */
  #lose(lane) {
    lane.lost = true;
    const index = this.lanes.indexOf(lane);
    for (const request of [...this.#requests.values()]) {
      if (request.lane === index) this.#finish(request, FinishReason.DEVICE_LOST);
    }
  }

  // --- the one end of a request

  /**
   * @param {Request} request
   * @param {Reason} reason
   * @param {number} [item]
   * @param {number} [stepId]
   * @param {number} [value]
   * @param {number} [neededNs]
   */
  #finish(request, reason, item = -1, stepId = -1, value = 0, neededNs = 0) {
    const { requestId } = request;
    request.alive = false;
    this.#requests.delete(requestId);
    const lane = this.lanes[request.lane];
    lane.queue.remove(request);
    if (request instanceof Generation && lane instanceof DecoderLane) {
      for (const sample of request.samples) lane.residents.end(sample);
    }
    this.stats.finish(reason);
    this.#out.push({ type: "finished", requestId, reason, item, stepId, value, neededNs });
  }
}

/**
 * @param {LaneSpec} spec
 * @param {Readonly<SchedulerConfig>} config
 * @returns {Lane}
 */
function laneOf(spec, config) {
  if (!(spec.weight >= 1)) {
    throw new InvalidInput(`the lane ${spec.name} has weight ${spec.weight}, expected at least 1`);
  }
  const Kind = spec.kind === LaneKind.DECODER ? DecoderLane : EncoderLane;
  return new Kind(spec, spec.config ?? config);
}

/**
 * @param {number} targetNs
 * @param {number} defaultMs
 */
function targetOf(targetNs, defaultMs) {
  return targetNs >= 0 ? Math.min(targetNs, MAX_NS) : defaultMs * NS_PER_MS;
}
