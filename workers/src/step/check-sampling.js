/** The checks of a step's sampling rows. */
import { InvalidInput, InvalidType } from "../errors.js";
import { MAX_TOP } from "../wasm/abi.js";
import { isCount } from "./integers.js";
import { StampSet } from "./stamps.js";

/** @typedef {import("../step.js").SamplingRow} SamplingRow */

const MAX_COUNT = 2 ** 31 - 1;
const MAX_SEED = 2n ** 64n - 1n;

/**
 * Words of a workspace's sampling data: a mask and 1024 penalized or biased tokens in every
 * wanted row.
 *
 * @param {number} vocabSize
 * @param {number} maxWanted
 */
export function samplingWords(vocabSize, maxWanted) {
  return maxWanted * (Math.ceil(vocabSize / 32) + 3 * Math.min(vocabSize, 1024));
}

export class SamplingChecker {
  #vocabSize;
  #words;
  /** @type {StampSet | null} made when a row first has a list */
  #seen = null;

  /**
   * @param {number} vocabSize
   * @param {number} maxWanted
   */
  constructor(vocabSize, maxWanted) {
    this.#vocabSize = vocabSize;
    this.#words = samplingWords(vocabSize, maxWanted);
  }

  /**
   * There is a sampling row per wanted row, and its values are in range.
   *
   * @param {readonly SamplingRow[]} rows
   * @param {number} wanted
   * @throws {InvalidInput} names the row, the field, its value and what was expected
   */
  check(rows, wanted) {
    if (!Array.isArray(rows) || rows.length !== wanted) {
      throw new InvalidInput(
        `sampling has ${rows?.length} rows, expected ${wanted}, one per wanted row`,
      );
    }
    let words = 0;
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i];
      if (typeof row !== "object" || row === null) {
        throw new InvalidType(`sampling row ${i} is ${String(row)}, expected an object`);
      }
      if (!inRange(row)) throw outOfRange(i, row);
      const { penalized, bias, mask } = row;
      if (penalized !== undefined) words += this.#checkPenalized(i, penalized);
      if (bias !== undefined) words += this.#checkBias(i, bias);
      if (mask != null) words += this.#checkMask(i, mask);
    }
    if (words > this.#words) {
      throw new InvalidInput(
        `penalized, bias and mask of the step take ${words} words, expected at most ` +
          `${this.#words}; sample fewer rows a step`,
      );
    }
  }

  /**
   * @param {number} i
   * @param {Int32Array | readonly number[]} list
   * @returns {number} words it takes
   */
  #checkPenalized(i, list) {
    this.#checkIds(i, "penalized", list, 3);
    for (let at = 0; at < list.length; at += 3) {
      for (let j = at + 1; j < at + 3; j++) {
        if (!isCount(list[j]) || list[j] > MAX_COUNT) {
          throw new InvalidInput(
            `sampling row ${i}: penalized has count ${String(list[j])}, expected 0 to ${MAX_COUNT}`,
          );
        }
      }
    }
    return list.length;
  }

  /**
   * @param {number} i
   * @param {Float64Array | readonly number[]} list
   * @returns {number} words it takes
   */
  #checkBias(i, list) {
    this.#checkIds(i, "bias", list, 2);
    for (let at = 1; at < list.length; at += 2) {
      if (!between(list[at], -1e9, 1e9)) {
        throw new InvalidInput(
          `sampling row ${i}: bias is ${String(list[at])}, expected -1e9 to 1e9`,
        );
      }
    }
    return list.length;
  }

  /**
   * Every `stride` numbers begin with an id, each id once.
   *
   * @param {number} i
   * @param {string} name
   * @param {ArrayLike<number>} list
   * @param {number} stride
   */
  #checkIds(i, name, list, stride) {
    if (!Array.isArray(list) && !(list instanceof Int32Array) && !(list instanceof Float64Array)) {
      throw new InvalidType(
        `sampling row ${i}: ${name} is ${typeof list}, expected an array of numbers`,
      );
    }
    if (list.length % stride !== 0) {
      throw new InvalidInput(
        `sampling row ${i}: ${name} has ${list.length} numbers, expected ${stride} per token`,
      );
    }
    const seen = (this.#seen ??= new StampSet(this.#vocabSize));
    seen.clear();
    for (let at = 0; at < list.length; at += stride) {
      const id = list[at];
      if (!isCount(id) || id >= this.#vocabSize) {
        throw new InvalidInput(
          `sampling row ${i}: ${name} has id ${String(id)}, expected 0 to ${this.#vocabSize - 1}`,
        );
      }
      if (!seen.add(id)) {
        throw new InvalidInput(
          `sampling row ${i}: ${name} has id ${id} twice, expected each id once`,
        );
      }
    }
  }

  /**
   * @param {number} i
   * @param {Uint32Array} mask
   * @returns {number} words it takes
   */
  #checkMask(i, mask) {
    const words = Math.ceil(this.#vocabSize / 32);
    if (!(mask instanceof Uint32Array)) {
      throw new InvalidType(`sampling row ${i}: mask is ${typeof mask}, expected a Uint32Array`);
    }
    if (mask.length !== words) {
      throw new InvalidInput(
        `sampling row ${i}: mask has ${mask.length} words, expected ${words} for ` +
          `${this.#vocabSize} tokens`,
      );
    }
    let any = 0;
    const whole = this.#vocabSize >>> 5;
    for (let w = 0; w < whole && any === 0; w++) any = mask[w];
    const rest = this.#vocabSize % 32;
    if (any === 0 && rest > 0) any = mask[whole] & (2 ** rest - 1);
    if (any === 0) {
      throw new InvalidInput(`sampling row ${i}: mask allows no token, expected at least one`);
    }
    return words;
  }
}

/**
 * @param {unknown} value
 * @param {number} low
 * @param {number} high
 */
function between(value, low, high) {
  return typeof value === "number" && value >= low && value <= high;
}

/**
 * Every number of a row is in range; a NaN is in no range.
 *
 * @param {SamplingRow} row
 */
function inRange({
  temperature = 0,
  topK = 0,
  topP = 1,
  minP = 0,
  repetitionPenalty = 1,
  presencePenalty = 0,
  frequencyPenalty = 0,
  seed = 0,
  position = 0,
  topLogprobs = 0,
}) {
  return (
    (temperature === 0 || between(temperature, 1e-6, 1e6)) &&
    isCount(topK) &&
    topK <= MAX_COUNT &&
    between(topP, Number.MIN_VALUE, 1) &&
    between(minP, 0, 1) &&
    between(repetitionPenalty, 1e-3, 1e3) &&
    between(presencePenalty, -1e3, 1e3) &&
    between(frequencyPenalty, -1e3, 1e3) &&
    isSeed(seed) &&
    isCount(position) &&
    isCount(topLogprobs) &&
    topLogprobs <= MAX_TOP
  );
}

/** @param {unknown} seed */
function isSeed(seed) {
  if (typeof seed === "bigint") return seed >= 0n && seed <= MAX_SEED;
  return Number.isSafeInteger(seed) && /** @type {number} */ (seed) >= 0;
}

const RANGES = {
  temperature: "0, or 1e-6 to 1e6",
  topK: `an integer 0 to ${MAX_COUNT}`,
  topP: "above 0, at most 1",
  minP: "0 to 1",
  repetitionPenalty: "1e-3 to 1e3",
  presencePenalty: "-1e3 to 1e3",
  frequencyPenalty: "-1e3 to 1e3",
  seed: "an integer 0 to 2^64 - 1, a bigint from 2^53 on",
  position: "an integer 0 to 2^32 - 1",
  topLogprobs: `an integer 0 to ${MAX_TOP}`,
};

/**
 * The error for the first field of a row that `inRange` rejects.
 *
 * @param {number} i
 * @param {SamplingRow} row
 */
function outOfRange(i, row) {
  const fields = /** @type {[keyof typeof RANGES, string][]} */ (Object.entries(RANGES));
  const [name, expected] = /** @type {typeof fields[0]} */ (
    fields.find(([field]) => !inRange({ [field]: row[field] }))
  );
  return new InvalidInput(
    `sampling row ${i}: ${name} is ${String(row[name])}, expected ${expected}`,
  );
}
