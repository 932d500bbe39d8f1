/** A step as Python sends it: two flat arrays, so that one call carries it over. */
import { InvalidInput } from "../errors.js";

/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").SamplingRow} SamplingRow */

/**
 * Mirrors `runtime_py/pyodide/step_words.py`.
 *
 * @param {Int32Array} words numbers of tokens, sequences, copies and wanted rows, 1 when the
 *   step samples; then the tokens, four numbers per sequence, per sequence the length of its
 *   block table and the table (decoders only), two numbers per copy, the wanted rows
 * @param {Float64Array | undefined} numbers per wanted row the eight numbers and the seed's halves
 *   and the position, the lengths of its three lists, and the lists; undefined = none
 * @param {boolean} isDecoder
 * @returns {Step}
 */
export function stepOfWords(words, numbers, isDecoder) {
  const [numTokens, numSeqs, numCopies, numWanted, samples] = words;
  let at = 5;
  const take = (/** @type {number} */ count) => words.subarray(at, (at += count));
  const tokenIds = take(numTokens);
  const seqs = Array.from({ length: numSeqs }, () => {
    const [firstToken, tokens, contextLen, poolSkip] = take(4);
    return { firstToken, numTokens: tokens, contextLen, poolSkip };
  });
  if (!isDecoder) return { tokenIds, seqs };
  const blockTables = seqs.map(() => take(take(1)[0]));
  const copies = take(2 * numCopies);
  const wanted = take(numWanted);
  if (at !== words.length) {
    throw new InvalidInput(`the step has ${words.length} words, expected ${at}`);
  }
  const sampling = samples && numbers ? samplingOfNumbers(numbers, numWanted) : null;
  return { tokenIds, seqs, blockTables, copies, wanted, sampling };
}

/**
 * @param {Float64Array} numbers
 * @param {number} count
 * @returns {SamplingRow[]}
 */
function samplingOfNumbers(numbers, count) {
  let at = 0;
  const take = (/** @type {number} */ n) => numbers.subarray(at, (at += n));
  return Array.from({ length: count }, () => {
    const [temperature, topK, topP, minP, repetition, presence, frequency, topLogprobs] = take(8);
    const [low, high, position, penalized, bias, mask] = take(6);
    return {
      temperature,
      topK,
      topP,
      minP,
      repetitionPenalty: repetition,
      presencePenalty: presence,
      frequencyPenalty: frequency,
      topLogprobs,
      seed: (BigInt(high) << 32n) | BigInt(low),
      position,
      penalized: Int32Array.from(take(penalized)),
      bias: Float64Array.from(take(bias)),
      mask: mask ? Uint32Array.from(take(mask)) : null,
    };
  });
}
