/** The sequences of a decoder lane: who holds blocks, who lost them, who ended. */
import { Sample, compareSamples } from "./generation.js";

/** @typedef {import("./generation.js").Generation} Generation */
/** @typedef {import("./kv/manager.js").KVManager} KVManager */

/**
 * Admits, forks, preempts and ends the samples of one lane. A sample that ends while a step
 * writes its blocks keeps them until that step is over.
 */
export class Residents {
  /** Samples that hold blocks or are about to, in order of admission. @type {Sample[]} */
  running = [];
  /** Samples that lost theirs, in the order of `compareSamples`. @type {Sample[]} */
  preempted = [];
  /** Sequences that the running samples stand for, unborn twins included. */
  seats = 0;
  /** Tokens that preemptions made the lane compute again. */
  recomputed = 0;

  #nextSeqId = 0;

  /** @param {KVManager} kv owns the blocks */
  constructor(kv) {
    this.kv = kv;
  }

  /**
   * Start the prompt of a request that has no sample yet.
   *
   * @param {Generation} request
   */
  admit(request) {
    const seqId = this.#nextSeqId++;
    this.kv.start(seqId, request.prompt, request.salt);
    const sample = new Sample(request, 0, seqId, this.kv.sequence(seqId));
    request.samples.push(sample);
    this.running.push(sample);
    this.seats += sample.seats;
    this.fork(sample);
  }

  /**
   * Let a preempted sample begin again from its tokens.
   *
   * @param {Sample} sample
   */
  resume(sample) {
    remove(this.preempted, sample);
    const computed = this.kv.resume(sample.seqId);
    this.recomputed -= computed;
    sample.resident = true;
    this.running.push(sample);
    this.seats += sample.seats;
    this.fork(sample);
  }

  /**
   * Take the blocks of a sample that is in no step; it keeps its tokens.
   *
   * @param {Sample} sample
   */
  preempt(sample) {
    this.recomputed += this.kv.preempt(sample.seqId);
    sample.preemptions += 1;
    sample.resident = false;
    remove(this.running, sample);
    this.seats -= sample.seats;
    this.preempted.push(sample);
    this.preempted.sort(compareSamples);
  }

  /**
   * Give birth to the twins once all but the last token of the prompt is computed. The last
   * one is computed by each for itself, since each samples from its logits.
   *
   * @param {Sample} sample
   */
  fork(sample) {
    const { request } = sample;
    if (request.forked || sample.left > 1) return;
    for (let index = 1; index < request.numTokens.length; index++) {
      const seqId = this.#nextSeqId++;
      this.kv.fork(sample.seqId, seqId);
      const twin = new Sample(request, index, seqId, this.kv.sequence(seqId));
      request.samples.push(twin);
      this.running.push(twin);
    }
    request.forked = true;
  }

  /**
   * Free a sample's blocks, at once or when its step is over; a second time does nothing.
   *
   * @param {Sample} sample
   * @param {boolean} [trust] its blocks may serve others that begin alike
   */
  end(sample, trust = true) {
    if (!sample.alive) return;
    sample.alive = false;
    if (sample.resident) {
      remove(this.running, sample);
      this.seats -= sample.seats;
    } else {
      remove(this.preempted, sample);
    }
    if (!trust) this.kv.discard(sample.seqId);
    else if (sample.inFlight === 0) this.kv.release(sample.seqId);
  }

  /**
   * The step that wrote the sample's blocks is over.
   *
   * @param {Sample} sample
   */
  landed(sample) {
    sample.inFlight = 0;
    if (!sample.alive) this.kv.release(sample.seqId);
  }
}

/**
 * @param {Sample[]} samples
 * @param {Sample} sample one of them
 */
function remove(samples, sample) {
  samples.splice(samples.indexOf(sample), 1);
}
