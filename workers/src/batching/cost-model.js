/**
 * What a step will cost: a non-negative linear model, fitted while it is used.
 *
 * The time of a step on k threads is modelled as
 *
 *     step + thread * (k - 1) + (seq * S + token * T + pair * sumLenSq + kv * KV) / k
 *
 * The profile gives first coefficients. What is learned is one multiplier per term: the
 * least-squares solution of the *relative* error over an exponentially forgotten past,
 * pulled towards one common factor ("this device is g times slower than the profile"), and
 * constrained to be non-negative by coordinate descent, warm-started from the last solution.
 */
import { MAX_NS } from "./types.js";

/** @typedef {import("./types.js").CostProfile} CostProfile */
/** @typedef {import("./types.js").StepShape} StepShape */

const TERMS = 6;
const RIDGE = 0.02; // weight of the common factor, in samples
const SWEEPS = 3;
const STREAK = 4; // same-sided misses in a row that mean the device changed
const STREAK_ERROR = 0.25;
const FORGET = 0.05; // what a change leaves of the old evidence
const MAX_FACTOR = 1e6;

/**
 * The model at a fixed thread count: `fixed + seq*S + token*T + pair*L2 + kv*KV` ns.
 *
 * @typedef {object} CostLine
 * @property {number} fixed
 * @property {number} seq
 * @property {number} token
 * @property {number} pair
 * @property {number} kv
 */

/** Predicts `StepShape` -> nanoseconds and learns from completed steps. */
export class CostModel {
  /** Steps learned from; warm-up steps do not count. */
  numSamples = 0;
  /** Decayed mean of `|measured - predicted| / predicted`. */
  error = 0;

  #profile;
  #keep;
  #warmupSteps;
  /** @type {Map<number, number>} */
  #seen = new Map();
  #a = new Float64Array(TERMS * TERMS);
  #b = new Float64Array(TERMS);
  #z = new Float64Array(TERMS);
  #commonNum = 0.01;
  #commonDen = 0.01;
  #factors = new Float64Array(TERMS).fill(1);
  #streak = 0;
  /** @type {Map<number, CostLine>} */
  #lines = new Map();

  /**
   * @param {CostProfile} profile
   * @param {{memorySteps: number, warmupSteps: number}} options
   */
  constructor({ stepNs, threadNs, seqNs, tokenNs, pairNs, kvNs }, { memorySteps, warmupSteps }) {
    const coefficients = [stepNs, threadNs, seqNs, tokenNs, pairNs, kvNs];
    this.#profile = Float64Array.from(coefficients, (c) => Math.max(c, 0));
    this.#keep = 1 - 1 / memorySteps;
    this.#warmupSteps = warmupSteps;
  }

  /** It has measured this device: its word is good enough to turn a request away. */
  get warm() {
    return this.numSamples > 0;
  }

  /**
   * The coefficients for steps on `threads` threads.
   *
   * @param {number} threads
   * @returns {CostLine}
   */
  line(threads) {
    let line = this.#lines.get(threads);
    if (line === undefined) {
      const c = this.#profile.map((p, i) => p * this.#factors[i]);
      line = {
        fixed: c[0] + c[1] * (threads - 1),
        seq: c[2] / threads,
        token: c[3] / threads,
        pair: c[4] / threads,
        kv: c[5] / threads,
      };
      this.#lines.set(threads, line);
    }
    return line;
  }

  /**
   * Nanoseconds of a step of this shape: at least 1.
   *
   * @param {StepShape} shape
   * @returns {number}
   */
  predict(shape) {
    const line = this.line(shape.threads);
    let ns = line.fixed + line.seq * shape.numSeqs;
    ns += line.token * shape.numTokens;
    ns += line.pair * shape.sumLenSq;
    ns += line.kv * shape.kvTokens;
    return Math.trunc(Math.min(Math.max(ns, 1), MAX_NS));
  }

  /**
   * Take in how long a step really took. Times that are not positive are ignored.
   *
   * @param {StepShape} shape
   * @param {number} deviceNs
   */
  learn(shape, deviceNs) {
    if (deviceNs <= 0) return;
    const seen = this.#seen.get(shape.threads) ?? 0;
    this.#seen.set(shape.threads, seen + 1);
    if (seen < this.#warmupSteps) return;
    const predicted = this.predict(shape);
    // One stalled step must not move the model far; a lasting change moves it every time.
    const reach = this.numSamples ? 4 : MAX_FACTOR;
    const measured = Math.min(Math.max(deviceNs, predicted / reach), predicted * reach);
    const miss = measured / predicted - 1;
    this.error += (Math.abs(miss) - this.error) / (this.numSamples >= 8 ? 8 : 2);
    this.#watch(miss);
    this.numSamples += 1;
    this.#accumulate(shape, measured);
    this.#solve();
  }

  /**
   * Forget the past when the device has changed: several misses to the same side.
   *
   * @param {number} miss
   */
  #watch(miss) {
    if (miss > STREAK_ERROR) {
      this.#streak = Math.max(this.#streak, 0) + 1;
    } else if (miss < -STREAK_ERROR / (1 + STREAK_ERROR)) {
      this.#streak = Math.min(this.#streak, 0) - 1;
    } else {
      this.#streak = 0;
    }
    if (Math.abs(this.#streak) === STREAK) {
      this.#streak = 0;
      this.#decay(FORGET);
    }
  }

  /** @param {number} keep */
  #decay(keep) {
    for (let i = 0; i < this.#a.length; i++) this.#a[i] *= keep;
    for (let i = 0; i < TERMS; i++) this.#b[i] *= keep;
    this.#commonNum *= keep;
    this.#commonDen *= keep;
  }

  /**
   * @param {StepShape} shape
   * @param {number} measured
   */
  #accumulate(shape, measured) {
    const { threads: k } = shape;
    const p = this.#profile;
    const z = this.#z;
    z[0] = p[0] / measured;
    z[1] = (p[1] * (k - 1)) / measured;
    z[2] = (p[2] * (shape.numSeqs / k)) / measured;
    z[3] = (p[3] * (shape.numTokens / k)) / measured;
    z[4] = (p[4] * (shape.sumLenSq / k)) / measured;
    z[5] = (p[5] * (shape.kvTokens / k)) / measured;
    this.#decay(this.#keep);
    let total = 0;
    for (let i = 0; i < TERMS; i++) {
      for (let j = 0; j < TERMS; j++) this.#a[i * TERMS + j] += z[i] * z[j];
      this.#b[i] += z[i];
      total += z[i];
    }
    this.#commonNum += total;
    this.#commonDen += total * total;
  }

  #solve() {
    const den = this.#commonDen;
    let common = den > 0 ? this.#commonNum / den : 1;
    common = Math.min(Math.max(common, 1 / MAX_FACTOR), MAX_FACTOR);
    const factors = this.#factors;
    // A change of the common factor is taken in one stroke, the sweeps do the rest.
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      for (let i = 0; i < TERMS; i++) {
        let rest = this.#b[i] + RIDGE * common;
        for (let j = 0; j < TERMS; j++) {
          if (j !== i) rest -= this.#a[i * TERMS + j] * factors[j];
        }
        const own = this.#a[i * TERMS + i] + RIDGE;
        factors[i] = Math.min(Math.max(rest / own, 0), MAX_FACTOR);
      }
    }
    this.#lines = new Map();
  }
}
