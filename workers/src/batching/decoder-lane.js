/** A decoder's work on the device: its queue, its sequences, its cache. */
import { InvalidInput } from "../errors.js";
import { DecoderBatcher } from "./decoder-batcher.js";
import { KVManager } from "./kv/manager.js";
import { Lane } from "./lane.js";
import { Residents } from "./residents.js";
import { NS_PER_MS, TrafficClass, stepShape } from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./types.js").LaneSpec} LaneSpec */

/**
 * Sequences that stay for many steps. One step at a time: each needs the tokens of the last.
 */
export class DecoderLane extends Lane {
  /** When the last one ended. */
  landedNs = 0;

  #maxWaitNs;

  /**
   * @param {LaneSpec} spec
   * @param {SchedulerConfig} config
   */
  constructor(spec, config) {
    super(spec, config);
    const { prefixCaching } = config;
    const kv = new KVManager(spec.kvBlocks, spec.blockSize, { model: spec.name, prefixCaching });
    const room = spec.kvBlocks * spec.blockSize;
    if (spec.maxContext < 0 || spec.maxTokens < 1 || spec.maxSeqs < 1) {
      throw new InvalidInput(`the lane ${spec.name} has limits below 1`);
    }
    /** Most tokens that a sequence can have. */
    this.maxContext = Math.min(spec.maxContext || room, room);
    /** Samples beyond the queue. */
    this.residents = new Residents(kv);
    this.batcher = new DecoderBatcher(config, this.admission, this.residents, this.queue);
    this.#maxWaitNs = config.throughputMaxWaitMs * NS_PER_MS;
    this.stepNs = config.tpotTargetMs * NS_PER_MS;
  }

  /** @override */
  get hasWork() {
    if (this.residents.stepId >= 0) return false;
    const { running, preempted } = this.residents;
    return running.length > 0 || preempted.length > 0 || this.queue.numSeqs > 0;
  }

  /** @override */
  get mayHold() {
    return this.residents.running.length === 0 && this.residents.preempted.length === 0;
  }

  /**
   * @override
   * @param {number} nowNs
   */
  isUrgent(nowNs) {
    const { running, preempted } = this.residents;
    const { latency, throughput } = this.queue;
    return (
      latency.size > 0 ||
      running.some((s) => s.suspect > 0 || s.request.traffic === TrafficClass.LATENCY) ||
      preempted.some((s) => s.request.traffic === TrafficClass.LATENCY) ||
      nowNs - Math.max(this.landedNs, throughput.servedNs) >= this.#maxWaitNs
    );
  }

  /**
   * @override
   * @param {number} threads
   * @param {number} nowNs
   */
  latestStartNs(threads, nowNs) {
    let startNs = nowNs;
    const head = this.queue.latency.head();
    if (this.residents.running.length > 0) {
      startNs = this.landedNs + this.stepNs;
      if (head !== null && head.dueNs < startNs) startNs = head.dueNs;
    } else if (head !== null) {
      startNs = head.dueNs;
    }
    return startNs - Math.min(this.cost.predict(this.waiting(threads)), this.stepNs);
  }

  /**
   * @override
   * @param {number} threads
   */
  waiting(threads) {
    const { running } = this.residents;
    let context = 0;
    for (const sample of running) context += sample.kv.tokens.length;
    const tokens = Math.min(running.length + this.queue.numTokens, this.admission.maxTokens);
    const seqs = Math.min(running.length + this.queue.numSeqs, this.admission.maxSeqs);
    return stepShape(seqs, tokens, context + this.queue.sumLenSq, context, threads);
  }
}
