/** How large a decoder's key-value cache is when nobody says. */
import { KV_BLOCK } from "./program/ops.js";

const CACHE_BYTES = 256 << 20;
const MIN_TOKENS = 2048;

/**
 * Blocks of about 256 MiB, at least 2,048 tokens or the model's context, at most what
 * `maxSeqs` sequences of it need.
 *
 * @param {{kv_bytes_per_token?: unknown, max_context?: unknown}} generation the manifest's
 *   section
 * @param {number} maxSeqs
 * @returns {number}
 */
export function defaultKvBlocks({ kv_bytes_per_token: perToken, max_context: context }, maxSeqs) {
  const maxContext = Number(context) || MIN_TOKENS;
  const fit = Math.floor(CACHE_BYTES / Math.max(Number(perToken) || 1, 1));
  const tokens = Math.max(fit, Math.min(MIN_TOKENS, maxContext));
  return Math.ceil(Math.min(tokens, maxSeqs * maxContext) / KV_BLOCK);
}
