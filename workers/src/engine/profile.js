/** Where the cost model starts: the artifact's measured profile, or a middling core. */
import { DEFAULT_PROFILE } from "../batching/index.js";

/**
 * A cost profile for one thread.
 *
 * @param {unknown} measured `coefficients_ns` of the manifest's `cost_profile`; what it has
 *   replaces the default
 * @returns {import("../batching/types.js").CostProfile}
 */
export function costProfile(measured) {
  const found = /** @type {Record<string, unknown>} */ (measured ?? {});
  const of = (/** @type {string} */ name, /** @type {number} */ byDefault) => {
    const value = found[name];
    return typeof value === "number" && value >= 0 && value < Infinity ? value : byDefault;
  };
  return {
    stepNs: of("constant", DEFAULT_PROFILE.stepNs),
    threadNs: DEFAULT_PROFILE.threadNs,
    seqNs: of("num_seqs", DEFAULT_PROFILE.seqNs),
    tokenNs: of("num_tokens", DEFAULT_PROFILE.tokenNs),
    pairNs: of("sum_len_sq", DEFAULT_PROFILE.pairNs),
    kvNs: of("kv_tokens", DEFAULT_PROFILE.kvNs),
  };
}
