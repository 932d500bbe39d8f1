/** Backpressure: callers that wait until the queue takes their next piece. */
import { TrafficClass } from "../batching/index.js";
import { Deferred } from "./deferred.js";

/** @typedef {import("../batching/types.js").Traffic} Traffic */

/** First come, first served, per traffic class. */
export class Room {
  #hasRoom;
  #ended = false;
  /** @type {Map<Traffic, {numSeqs: number, turn: Deferred<void>}[]>} */
  #waiting = new Map(Object.values(TrafficClass).map((traffic) => [traffic, []]));

  /**
   * @param {(numSeqs: number, traffic: Traffic) => boolean} hasRoom whether the queue of a
   *   class would take so many more sequences now
   */
  constructor(hasRoom) {
    this.#hasRoom = hasRoom;
  }

  /**
   * Return when `numSeqs` more sequences fit, or after `end`. The caller must submit before
   * it awaits anything else.
   *
   * @param {number} numSeqs
   * @param {Traffic} traffic
   * @param {AbortSignal} [signal] gives the place in the line up; the caller then looks
   * @returns {Promise<void>}
   */
  async wait(numSeqs, traffic, signal) {
    const waiting = this.#of(traffic);
    let ahead = waiting.length > 0;
    let first = true;
    while (!this.#ended && !signal?.aborted && (ahead || !this.#hasRoom(numSeqs, traffic))) {
      const waiter = { numSeqs, turn: /** @type {Deferred<void>} */ (new Deferred()) };
      // Who had its turn and found the room taken goes back to the front
      if (first) waiting.push(waiter);
      else waiting.unshift(waiter);
      ahead = first = false;
      const leave = () => waiter.turn.resolve();
      signal?.addEventListener("abort", leave);
      await waiter.turn.promise;
      signal?.removeEventListener("abort", leave);
      if (signal?.aborted) {
        const at = waiting.indexOf(waiter);
        if (at >= 0) waiting.splice(at, 1);
        this.wake(); // whoever is next may fit, or had its turn given to us
      }
    }
  }

  /** Give the first of each class its turn, if it fits; call it after every change. */
  wake() {
    for (const [traffic, waiting] of this.#waiting) {
      while (waiting.length > 0) {
        if (!this.#ended && !this.#hasRoom(waiting[0].numSeqs, traffic)) break;
        const { turn } = /** @type {{turn: Deferred<void>}} */ (waiting.shift());
        if (turn.settled) continue;
        turn.resolve();
        if (!this.#ended) break; // it submits now; the change that makes wakes the next
      }
    }
  }

  /** Let everybody go, now and later. */
  end() {
    this.#ended = true;
    this.wake();
  }

  /** @param {Traffic} traffic */
  #of(traffic) {
    return /** @type {{numSeqs: number, turn: Deferred<void>}[]} */ (this.#waiting.get(traffic));
  }
}
