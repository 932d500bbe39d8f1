/** The step: the only way into a backend (docs/design.md, 3.3 and 7.2). */

/**
 * One sequence of a step.
 *
 * @typedef {object} SeqRow
 * @property {number} firstToken index of its first token in the step's `tokenIds`
 * @property {number} numTokens tokens it has in this step, at least 1
 * @property {number} [contextLen] its tokens that ran in earlier steps; 0 for an encoder.
 *   Token i has position `contextLen + i`
 * @property {number} [poolSkip] leading tokens that pooling leaves out
 */

/**
 * How the backend turns one wanted row of logits into a token. Applied in this order:
 * penalties over `penalized`, `bias`, `mask`, temperature, top-k, top-p, min-p. The random
 * number is a function of `seed` and `position` alone.
 *
 * @typedef {object} SamplingRow
 * @property {number} [temperature] 0, the default, takes the most likely token (the lowest
 *   id on a tie); else 1e-6 to 1e6
 * @property {number} [topK] 0 = all
 * @property {number} [topP] 1 = all
 * @property {number} [minP] 0 = all
 * @property {number} [repetitionPenalty] 1 = none; 1e-3 to 1e3
 * @property {number} [presencePenalty] 0 = none; -1e3 to 1e3
 * @property {number} [frequencyPenalty] 0 = none; -1e3 to 1e3
 * @property {Int32Array | readonly number[]} [penalized] three numbers per token, each token
 *   once: its id, its occurrences in the prompt, its occurrences in the output
 * @property {Float64Array | readonly number[]} [bias] two numbers per token, each token
 *   once: its id, what is added to its logit (-1e9 to 1e9)
 * @property {Uint32Array | null} [mask] bit i of the words allows token i; null allows all;
 *   ceil(vocabulary / 32) words, and at least one token must be allowed
 * @property {number | bigint} [seed] 64 bits
 * @property {number} [position] of the token to be sampled, from 0 at the first prompt
 *   token; 32 bits
 * @property {number} [topLogprobs] how many most likely tokens to report, at most 20
 */

/**
 * One execution of the whole program over T packed tokens of S sequences. Whoever runs a
 * step leaves its arrays alone until the result is there.
 *
 * @typedef {object} Step
 * @property {Int32Array | readonly number[]} tokenIds T ids; sequences lie back to back, in
 *   order, without padding
 * @property {readonly SeqRow[]} seqs S rows
 * @property {readonly (Int32Array | readonly number[])[]} [blockTables] decoders only: per
 *   sequence, the blocks (32 tokens each) of the key-value cache that hold its positions
 *   0 .. contextLen + numTokens - 1; further ids are ignored
 * @property {Int32Array | readonly number[]} [copies] decoders only: two numbers per copy,
 *   the blocks from which and to which it goes, before anything else runs
 * @property {Int32Array | readonly number[]} [wanted] decoders only: W ascending token
 *   indices whose logits are computed
 * @property {readonly SamplingRow[] | null} [sampling] W rows, or null to return the logits
 */

/** What became of a sequence. */
export const SeqStatus = Object.freeze({ OK: 0, NON_FINITE: 1 });

/**
 * The tokens that the wanted rows gave.
 *
 * @typedef {object} Sampled
 * @property {Int32Array} tokenIds [W]; -1 where the logits were not finite
 * @property {Float32Array} logprobs [W] of the tokens, natural logarithm, after penalties,
 *   bias and mask, before temperature and the cuts; NaN where there is no token
 * @property {readonly TopLogprobs[]} top [W]; no tokens in rows that asked for none
 */

/**
 * @typedef {object} TopLogprobs the most likely tokens of one row, best first
 * @property {Int32Array} tokenIds
 * @property {Float32Array} logprobs
 */

/**
 * @typedef {object} StepResult owned by the caller: a later step does not change it
 * @property {Float32Array} output [rows, width], rows are sequences, tokens when the
 *   program's output slot holds tokens, or a decoder's wanted rows, of which there are none
 *   here when the step samples
 * @property {number} rows
 * @property {number} width
 * @property {Uint8Array} statuses one `SeqStatus` per sequence
 * @property {Sampled | null} sampled null unless the step samples
 * @property {number} deviceNs time from the step's start to its end in the backend
 */

/**
 * What one step may hold, fixed at load.
 *
 * @typedef {object} StepLimits
 * @property {number} maxTokens most tokens
 * @property {number} maxSeqs most sequences
 * @property {number} kvBlocks blocks of the key-value cache; 0 for an encoder
 * @property {number} maxWanted most wanted rows; 0 for an encoder
 */

/**
 * Make a step of whole sequences.
 *
 * @param {readonly (Int32Array | readonly number[])[]} sequences token ids of each
 * @returns {Step}
 */
export function packSequences(sequences) {
  const tokenIds = new Int32Array(sequences.reduce((sum, ids) => sum + ids.length, 0));
  let firstToken = 0;
  const seqs = sequences.map((ids) => {
    tokenIds.set(ids, firstToken);
    const row = { firstToken, numTokens: ids.length };
    firstToken += ids.length;
    return row;
  });
  return { tokenIds, seqs };
}
