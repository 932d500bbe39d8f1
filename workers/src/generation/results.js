/** What a generation gives: pieces while it runs, and the whole. */

/**
 * One token of one sample.
 *
 * @typedef {object} TextPiece
 * @property {string} text what it adds to the sample's text; empty while a character or a
 *   possible stop string is incomplete, and for the token that ends it
 * @property {number} tokenId
 * @property {number} index which sample
 * @property {number | null} logprob of the token, if log-probabilities were asked for
 * @property {readonly {tokenId: number, logprob: number}[]} topLogprobs the most likely
 *   tokens, best first
 * @property {"stop" | "length" | null} finishReason with a sample's last piece
 */

/**
 * One whole sample.
 *
 * @typedef {object} Completion
 * @property {string} text without the stop string or stop token that ended it
 * @property {number[]} tokenIds as sampled, the stop token included
 * @property {"stop" | "length"} finishReason "stop": a stop token or stop string
 * @property {number[] | null} logprobs per token, if they were asked for
 * @property {number} tpotMs mean time between its tokens; 0 for a single one
 */

/**
 * Tokens of a request; `cachedTokens` of the prompt were not computed again.
 *
 * @typedef {object} Usage
 * @property {number} promptTokens
 * @property {number} cachedTokens
 * @property {number} completionTokens
 */

/**
 * A finished generation.
 *
 * @typedef {object} GenerateResult
 * @property {string} text of the first sample
 * @property {"stop" | "length"} finishReason of the first sample
 * @property {Completion[]} completions one per sample
 * @property {Usage} usage
 * @property {number} queueMs from the call to its first step
 * @property {number} ttftMs from the call to its first token
 * @property {number} batchSeqs the size of the largest step that carried it, other requests
 *   included
 * @property {number} batchTokens
 * @property {number | bigint} seed repeats the call's result
 */

export {};
