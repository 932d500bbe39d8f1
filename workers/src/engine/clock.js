/** Time as the engine needs it: whole nanoseconds, and one alarm. */

/**
 * @typedef {object} Clock
 * @property {() => number} nowNs whole nanoseconds, never running backwards
 * @property {(call: () => void, delayNs: number) => unknown} wake calls once, later; returns
 *   a handle
 * @property {(handle: any) => void} cancel
 */

/** The host's clock. @type {Clock} */
export const hostClock = Object.freeze({
  nowNs: () => Math.floor(performance.now() * 1e6),
  // Late rather than early: a timer that rings before its time would be set again
  wake: (call, delayNs) => setTimeout(call, Math.min(Math.ceil(delayNs / 1e6), 2 ** 31 - 1)),
  cancel: (handle) => clearTimeout(handle),
});
