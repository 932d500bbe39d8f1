/** The numbers of the dashboard, each read from two snapshots of a model's `stats()`. */

/**
 * What the dashboard needs of a snapshot, of the JavaScript engine or of the Python one.
 *
 * @typedef {object} Stats
 * @property {number} queuedSeqs
 * @property {number} runningSteps
 * @property {number} runningSeqs of a decoder; 0 for an encoder
 * @property {number} steps
 * @property {number} seqs
 * @property {number} tokens
 * @property {number} deviceMs
 * @property {Record<number, number>} batchSizes
 */

/**
 * @typedef {object} Reading
 * @property {Stats} now
 * @property {Stats} before
 * @property {number} seconds between the two
 * @property {number} threads of the device
 */

/**
 * @typedef {object} Gauge
 * @property {string} label
 * @property {string} unit
 * @property {number} [digits] after the point
 * @property {(reading: Reading) => number} read not finite: nothing new
 */

/** @type {readonly Gauge[]} */
export const GAUGES = [
  { label: "Waiting", unit: "", read: ({ now }) => now.queuedSeqs },
  { label: "Running", unit: "", read: ({ now }) => now.runningSeqs || now.runningSteps },
  {
    label: "Batch size",
    unit: "",
    digits: 1,
    read: ({ now, before }) => (now.seqs - before.seqs) / (now.steps - before.steps),
  },
  {
    label: "Tokens",
    unit: "/s",
    read: ({ now, before, seconds }) => (now.tokens - before.tokens) / seconds,
  },
  {
    label: "Step time",
    unit: "ms",
    digits: 1,
    read: ({ now, before }) => (now.deviceMs - before.deviceMs) / (now.steps - before.steps),
  },
  {
    label: "Device busy",
    unit: "%",
    read: ({ now, before, seconds, threads }) =>
      Math.min((now.deviceMs - before.deviceMs) / (10 * seconds * threads), 100),
  },
  { label: "Threads", unit: "", read: ({ threads }) => threads },
];
