/** Which lane gets the device next, and with how many threads. */
import { NS_PER_MS, stepShape } from "./types.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./types.js").DeviceSpec} DeviceSpec */

/** Divides one device between lanes and a lane's threads between steps. */
export class Arbiter {
  #device;
  #stepNs;

  /**
   * @param {DeviceSpec} device
   * @param {number} stepTargetMs
   */
  constructor(device, stepTargetMs) {
    this.#device = device;
    this.#stepNs = stepTargetMs * NS_PER_MS;
  }

  /**
   * The lane whose work should start now, or null when nothing waits.
   *
   * Latency work (and bulk work whose turn is overdue) goes first, the one that must start
   * earliest. Bulk lanes share the rest by device time over weight. Slack is spent in one
   * case only: when a bulk step ends before an urgent lane must start, and the arrivals
   * expected until then will make that lane's step larger.
   *
   * @param {readonly Lane[]} lanes
   * @param {number} nowNs
   * @returns {Lane | null}
   */
  chooseLane(lanes, nowNs) {
    if (lanes.length === 1) return lanes[0].hasWork ? lanes[0] : null;
    /** @type {Lane | null} */
    let urgent = null;
    /** @type {Lane | null} */
    let bulk = null;
    let startNs = 0;
    for (const lane of lanes) {
      if (!lane.hasWork) continue;
      if (lane.isUrgent(nowNs)) {
        const latest = lane.latestStartNs(this.#device.threads, nowNs);
        if (urgent === null || latest < startNs) {
          urgent = lane;
          startNs = latest;
        }
      } else if (bulk === null || lane.shareNs < bulk.shareNs) {
        bulk = lane;
      }
    }
    if (urgent === null || bulk === null) return urgent ?? bulk;
    const slackNs = startNs - nowNs;
    if (slackNs > this.#stepNs && urgent.arrivals.expected(slackNs, nowNs) > 0) return bulk;
    return urgent;
  }

  /**
   * Threads for the lane's next step and the predicted time it may take, in ns.
   *
   * With a backlog, side-by-side steps waste no time at barriers, and they end at different
   * times, so the device is often free for a newcomer. Work that one round of steps would
   * finish is better joined, because steps of unequal length leave threads idle at the end;
   * and a lone request gets as many threads as help it.
   *
   * @param {Lane} lane it has waiting work
   * @param {number} free threads that no step uses
   * @param {number} slots steps that may still start
   * @returns {{threads: number, limitNs: number}}
   */
  chooseThreads(lane, free, slots) {
    const { queue, cost } = lane;
    const stepNs = this.#stepNs;
    const steps = Math.min(slots, free, queue.numSeqs);
    if (steps > 1) {
      const part = (/** @type {number} */ total) => Math.floor(total / steps);
      const threads = part(free);
      const numSeqs = part(queue.numSeqs);
      const share = stepShape(numSeqs, part(queue.numTokens), part(queue.sumLenSq), 0, threads);
      const sideNs = cost.predict(share);
      if (sideNs > stepNs) return { threads, limitNs: stepNs };
      const joinedNs = cost.predict(lane.waiting(free));
      const longerNs = sideNs + Math.floor(sideNs / (2 * numSeqs));
      if (joinedNs > longerNs) return { threads, limitNs: longerNs };
    }
    const threads = this.bestThreads(lane, free);
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
}
