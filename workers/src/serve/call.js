/** One request on its way through the handler. */

/** @typedef {import("../model.js").Model} Model */
/** @typedef {import("./metrics.js").Metrics} Metrics */

/**
 * @typedef {object} Call
 * @property {Record<string, unknown>} body
 * @property {Headers} headers
 * @property {AbortSignal} signal fires when the client goes away
 * @property {number} arrivedMs on the clock of `performance.now`
 * @property {(task: "embed" | "generate") => Promise<{name: string, model: Model}>} find the
 *   model that the body names
 * @property {Metrics} metrics
 * @property {Record<string, unknown>} defaults options of `generate` and `chat` where the body
 *   is silent
 * @property {(outcome: unknown) => void} ended to be called once a streamed answer is over:
 *   with undefined, or why it failed
 */

export {};
