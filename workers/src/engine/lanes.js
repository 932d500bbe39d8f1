/** The lane of a backend: what the scheduler must know of it. */
import { LaneKind, laneSpec } from "../batching/index.js";
import { KV_BLOCK } from "../program/ops.js";

/** @typedef {import("../batching/types.js").CostProfile} CostProfile */
/** @typedef {import("../batching/types.js").LaneSpec} LaneSpec */

/**
 * A decoder's lane if the backend has a key-value cache, else an encoder's.
 *
 * @param {import("../step.js").StepLimits} limits
 * @param {object} options
 * @param {CostProfile} options.profile
 * @param {number} [options.maxContext] of a decoder, the most tokens of a sequence; 0 = what
 *   its cache holds
 * @param {string} [options.model] its name, where several share a device
 * @param {number} [options.share] its bulk work's weight against that of the others
 * @returns {LaneSpec}
 */
export function laneOf(limits, { profile, maxContext = 0, model = "", share = 1 }) {
  const { maxTokens, maxSeqs, kvBlocks, maxWanted } = limits;
  const kind = kvBlocks > 0 ? "generate" : "embed";
  const name = model ? `${model}/${kind}` : kind;
  const lane = { name, maxTokens, maxSeqs, weight: share, profile };
  if (kvBlocks === 0) return laneSpec(lane);
  return laneSpec({
    ...lane,
    maxSeqs: Math.min(maxSeqs, maxWanted),
    kind: LaneKind.DECODER,
    kvBlocks,
    blockSize: KV_BLOCK,
    maxContext,
  });
}

/**
 * Most tokens of a decoder's sequence; 0 for an encoder.
 *
 * @param {LaneSpec} spec
 */
export function contextOf({ kvBlocks, blockSize, maxContext }) {
  const room = kvBlocks * blockSize;
  return Math.min(maxContext || room, room);
}
