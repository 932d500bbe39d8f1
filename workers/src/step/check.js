/**
 * The checks that a step passes before any work. Mirrors `runtime_py/executors/check.py`.
 * A decoder is checked once per token, so nothing here allocates.
 */
import { InvalidInput, InvalidType } from "../errors.js";
import { GenerationChecker } from "./check-generation.js";
import { isCount, isIntegers } from "./integers.js";

/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepLimits} StepLimits */

/**
 * What a model has; a program says so.
 *
 * @typedef {object} Bounds
 * @property {number} vocabSize
 * @property {number} maxPositions 0 = unlimited
 */

// Kernels compute with 32-bit positions.
const LAST_POSITION = 2 ** 31 - 1;

export class StepChecker {
  #bounds;
  #limits;
  #generation;

  /**
   * @param {Bounds} bounds
   * @param {StepLimits} limits
   */
  constructor(bounds, limits) {
    this.#bounds = bounds;
    this.#limits = limits;
    this.#generation = limits.kvBlocks > 0 ? new GenerationChecker(bounds, limits) : null;
  }

  /**
   * @param {Step} step
   * @throws {InvalidInput} names what is wrong, its value and what was expected
   */
  check(step) {
    checkCounts(step, this.#limits);
    checkRows(step, this.#bounds);
    if (this.#generation === null) checkEncoder(step);
    else this.#generation.check(step);
  }
}

/**
 * @param {Step} step
 * @param {StepLimits} limits
 */
function checkCounts({ tokenIds, seqs }, { maxTokens, maxSeqs }) {
  if (!isIntegers(tokenIds)) {
    throw new InvalidType(`step.tokenIds is ${typeof tokenIds}, expected an Int32Array or array`);
  }
  if (!Array.isArray(seqs)) {
    throw new InvalidType(`step.seqs is ${typeof seqs}, expected an array`);
  }
  if (tokenIds.length === 0 || tokenIds.length > maxTokens) {
    throw new InvalidInput(`the step has ${tokenIds.length} tokens, expected 1 to ${maxTokens}`);
  }
  if (seqs.length === 0 || seqs.length > maxSeqs) {
    throw new InvalidInput(`the step has ${seqs.length} sequences, expected 1 to ${maxSeqs}`);
  }
}

/**
 * Sequences tile the tokens, and ids and positions exist.
 *
 * @param {Step} step
 * @param {Bounds} bounds
 */
function checkRows({ tokenIds, seqs }, { vocabSize, maxPositions }) {
  const positions = maxPositions || LAST_POSITION;
  let next = 0;
  for (let i = 0; i < seqs.length; i++) {
    const { firstToken, numTokens, contextLen = 0, poolSkip = 0 } = seqs[i] ?? {};
    if (!isCount(firstToken)) throw notCount("firstToken", i, firstToken);
    if (!isCount(numTokens)) throw notCount("numTokens", i, numTokens);
    if (!isCount(contextLen)) throw notCount("contextLen", i, contextLen);
    if (!isCount(poolSkip)) throw notCount("poolSkip", i, poolSkip);
    if (firstToken !== next || numTokens === 0) {
      throw new InvalidInput(
        `sequence ${i} has ${numTokens} tokens from ${firstToken} on, expected at least 1 ` +
          `from ${next} on`,
      );
    }
    if (poolSkip >= numTokens) {
      throw new InvalidInput(
        `sequence ${i} skips ${poolSkip} of its ${numTokens} tokens in pooling, expected 0 to ` +
          `${numTokens - 1}`,
      );
    }
    const end = contextLen + numTokens;
    if (end > positions) {
      throw new InvalidInput(
        `sequence ${i} has positions ${contextLen} to ${end - 1}, the model has 0 to ` +
          `${positions - 1}; truncate it`,
      );
    }
    next += numTokens;
  }
  if (next !== tokenIds.length) {
    throw new InvalidInput(`the sequences hold ${next} tokens, the step ${tokenIds.length}`);
  }
  for (let i = 0; i < tokenIds.length; i++) {
    const id = tokenIds[i];
    if (!isCount(id) || id >= vocabSize) {
      throw new InvalidInput(
        `token ${i} of the step has id ${String(id)}, expected an integer 0 to ${vocabSize - 1}`,
      );
    }
  }
}

/** @param {Step} step */
function checkEncoder({ blockTables, copies, wanted, sampling }) {
  const lists = { blockTables, copies, wanted };
  for (const [name, list] of Object.entries(lists)) {
    if (list?.length) {
      throw new InvalidInput(`${name} has ${list.length} entries, expected none for an encoder`);
    }
  }
  if (sampling != null) throw new InvalidInput("sampling is given, expected null for an encoder");
}

/**
 * @param {string} name
 * @param {number} i
 * @param {unknown} value
 */
function notCount(name, i, value) {
  return new InvalidInput(
    `${name} of sequence ${i} is ${String(value)}, expected a non-negative integer`,
  );
}
