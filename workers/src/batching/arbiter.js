/** Which lane gets the device next, and with how many threads. */
import { MAX_NS, Turn, mostThreads, stepShape } from "./types.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./types.js").DeviceSpec} DeviceSpec */
/** @typedef {import("./types.js").TurnName} TurnName */

/**
 * The lane that gets the device, and why it does.
 *
 * @typedef {object} Choice
 * @property {Lane} lane
 * @property {TurnName} turn
 */

/** Divides one device between lanes and a lane's threads between steps. */
export class Arbiter {
  /** When the first lane that saves energy has to start, or `MAX_NS`. */
  wakeNs = MAX_NS;

  #device;

  /** @param {DeviceSpec} device */
  constructor(device) {
    this.#device = device;
  }

  /**
   * The lane whose work should start now, or null when nothing should.
   *
   * Latency work (and bulk work whose turn is overdue) goes first, the one that must start
   * earliest; but if several are late already, the device is divided by time over weight, as
   * it is between bulk lanes. Slack is spent in one case only: when a bulk step ends before an
   * urgent lane must start, and the arrivals expected until then will make that lane's step
   * larger.
   *
   * @param {readonly Lane[]} lanes
   * @param {number} nowNs
   * @returns {Choice | null}
   */
  chooseLane(lanes, nowNs) {
    this.wakeNs = MAX_NS;
    const ready = lanes.filter((lane) => lane.hasWork && !this.#holds(lane, nowNs));
    if (ready.length < 2) return ready.length > 0 ? { lane: ready[0], turn: Turn.ONLY } : null;
    /** @type {Lane | null} */
    let urgent = null;
    /** @type {Lane | null} */
    let late = null;
    /** @type {Lane | null} */
    let bulk = null;
    let numLate = 0;
    let startNs = 0;
    for (const lane of ready) {
      if (lane.isUrgent(nowNs)) {
        const latest = lane.latestStartNs(this.#device.threads, nowNs);
        if (urgent === null || latest < startNs) {
          urgent = lane;
          startNs = latest;
        }
        if (latest < nowNs) {
          numLate += 1;
          if (late === null || lane.shareNs < late.shareNs) late = lane;
        }
      } else if (bulk === null || lane.shareNs < bulk.shareNs) {
        bulk = lane;
      }
    }
    if (late !== null && numLate > 1) return { lane: late, turn: Turn.LATE };
    if (bulk === null) return urgent === null ? null : { lane: urgent, turn: Turn.URGENT };
    if (urgent === null) return { lane: bulk, turn: Turn.SHARE };
    const slackNs = startNs - nowNs;
    if (slackNs > bulk.stepNs && urgent.arrivals.expected(slackNs, nowNs) > 0) {
      return { lane: bulk, turn: Turn.SLACK };
    }
    return { lane: urgent, turn: Turn.URGENT };
  }

  /**
   * It saves energy and can wait; when it no longer can is noted.
   *
   * @param {Lane} lane
   * @param {number} nowNs
   */
  #holds(lane, nowNs) {
    if (!lane.config.energySaving) return false;
    const untilNs = lane.holdUntilNs(this.#device.threads, nowNs);
    if (untilNs <= nowNs) return false;
    this.wakeNs = Math.min(this.wakeNs, untilNs);
    return true;
  }

  /**
   * Threads for the lane's next step and the predicted time it may take, in ns.
   *
   * With a backlog, side-by-side steps waste no time at barriers, and they end at different
   * times, so the device is often free for a newcomer. Work that one round of steps would
   * finish is better joined, because steps of unequal length leave threads idle at the end;
   * and a lone request gets as many threads as help it, unless arrivals are expected that
   * would find them all taken.
   *
   * @param {Lane} lane it has waiting work
   * @param {number} free threads that no step uses
   * @param {number} slots steps that may still start
   * @param {number} nowNs the present
   * @returns {{threads: number, limitNs: number}}
   */
  chooseThreads(lane, free, slots, nowNs) {
    const { cost } = lane;
    const most = mostThreads(this.#device, free);
    const stepNs = lane.limitNs(most, nowNs);
    const side = free > 1 && slots > 1 ? this.#sideBySide(lane, free, slots, stepNs, nowNs) : null;
    if (side !== null) return side;
    const threads = this.bestThreads(lane, most);
    const waitingNs = cost.predict(lane.waiting(threads));
    const rounds = Math.min(this.#device.threads, this.#device.concurrentSteps);
    if (slots === 1 && waitingNs * rounds > stepNs) {
      // The last steps of a backlog shrink, so that the threads end together.
      return { threads, limitNs: Math.min(stepNs, waitingNs / rounds) };
    }
    return { threads, limitNs: stepNs };
  }

  /**
   * The count that finishes the waiting work first; the largest among equals.
   *
   * @param {Lane} lane
   * @param {number} free
   */
  bestThreads(lane, free) {
    let best = free;
    if (free > 1) {
      let bestNs = lane.cost.predict(lane.waiting(free));
      for (let threads = free - 1; threads > 0; threads--) {
        const ns = lane.cost.predict(lane.waiting(threads));
        if (ns < bestNs) {
          best = threads;
          bestNs = ns;
        }
      }
    }
    return best;
  }

  /**
   * What the first of several steps side by side would be, if that is better than one.
   *
   * @param {Lane} lane
   * @param {number} free
   * @param {number} slots
   * @param {number} stepNs
   * @param {number} nowNs
   */
  #sideBySide(lane, free, slots, stepNs, nowNs) {
    const { cost } = lane;
    const most = mostThreads(this.#device, free);
    const joined = lane.waiting(most);
    // One client in a closed loop arrives once per step, and finds the device free
    const coming = Math.max(lane.arrivals.expected(cost.predict(joined), nowNs) - 1, 0);
    const seqs = joined.numSeqs;
    const steps = Math.min(slots, free, seqs + coming);
    if (steps <= 1) return null;
    const part = (/** @type {number} */ total) => Math.floor(total / steps);
    const scale = (seqs + coming) / seqs;
    const threads = Math.min(part(free), most);
    const numSeqs = Math.max(part(Math.trunc(seqs * scale)), 1);
    const tokens = Math.trunc(joined.numTokens * scale);
    const pairs = Math.trunc(joined.sumLenSq * scale);
    const sideNs = cost.predict(stepShape(numSeqs, part(tokens), part(pairs), 0, threads));
    if (sideNs > stepNs) return { threads, limitNs: stepNs };
    const joinedNs = cost.predict(stepShape(seqs + coming, tokens, pairs, 0, most));
    const mostNs = sideNs + Math.floor(sideNs / (2 * numSeqs));
    return joinedNs > mostNs ? { threads, limitNs: mostNs } : null;
  }
}
