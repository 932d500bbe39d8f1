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
  /** The step on the device, -1 = none. */
  stepId = -1;

  /** @type {readonly Sample[] | null} */
  #streams = null;
  #nextSeqId = 0;

  /** @param {KVManager} kv owns the blocks */
  constructor(kv) {
    this.kv = kv;
  }

  /**
   * Those of the running samples that compute one token and get the next, in order. The same
   * list as long as nobody joins or leaves them, which is most steps.
   */
  get streams() {
    this.#streams ??= this.running.filter((s) => s.decodes && s.suspect === 0);
    return this.#streams;
  }

  /** Prompts have come further, or a step has failed: other samples may be streams. */
  changed() {
    this.#streams = null;
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
    this.changed();
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
    this.changed();
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
    this.changed();
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
    this.changed();
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
      this.changed();
    } else {
      remove(this.preempted, sample);
    }
    if (!trust) this.kv.discard(sample.seqId);
    else if (this.stepId < 0 || sample.lastStep !== this.stepId) this.kv.release(sample.seqId);
  }

  /**
   * The step that wrote the members' blocks is over.
   *
   * @param {readonly (readonly [Sample, number])[]} members
   */
  landed(members) {
    this.stepId = -1;
    for (const [sample] of members) if (!sample.alive) this.kv.release(sample.seqId);
  }
}

/**
 * @param {Sample[]} samples
 * @param {Sample} sample one of them
 */
function remove(samples, sample) {
  samples.splice(samples.indexOf(sample), 1);
}
