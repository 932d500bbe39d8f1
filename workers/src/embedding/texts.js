/** Checking what callers pass as texts, and cutting it into pieces. */
import { checkInt, kindOf } from "../checks.js";
import { InvalidInput, InvalidType } from "../errors.js";

/** What is embedded: a text, or its token ids. @typedef {string | readonly number[]} Text */

export const MAX_PIECE_TEXTS = 128;
const MAX_PIECE_CHARS = 1 << 18;

/**
 * @param {unknown} text
 * @param {number} index
 * @param {number} vocabSize
 * @returns {Text}
 */
function checkText(text, index, vocabSize) {
  if (typeof text === "string") return text;
  if (!Array.isArray(text)) {
    throw new InvalidType(`texts[${index}] is ${kindOf(text)}, expected a string`);
  }
  if (text.length === 0) {
    throw new InvalidInput(`texts[${index}] has no token ids, expected at least one`);
  }
  text.forEach((id, i) => checkInt(`texts[${index}][${i}]`, id, 0, vocabSize - 1));
  return text;
}

/**
 * The texts of a call.
 *
 * @param {unknown} texts a string, or an iterable of strings and arrays of token ids
 * @param {number} vocabSize
 * @returns {Text[]}
 */
export function checkTexts(texts, vocabSize) {
  if (typeof texts === "string") return [texts];
  return Array.from(checkIterable(texts, false), (text, i) => checkText(text, i, vocabSize));
}

/**
 * Cut `texts` where a count or a number of characters, or of ids, is reached.
 *
 * @param {readonly Text[]} texts
 * @param {number} maxTexts
 * @returns {Generator<readonly Text[]>}
 */
export function* pieces(texts, maxTexts) {
  let start = 0;
  let chars = 0;
  for (let i = 0; i < texts.length; i++) {
    if (i > start && (i - start >= maxTexts || chars + texts[i].length > MAX_PIECE_CHARS)) {
      yield texts.slice(start, i);
      start = i;
      chars = 0;
    }
    chars += texts[i].length;
  }
  if (start < texts.length) yield texts.slice(start);
}

/**
 * Checked pieces of at most `size` texts, cut early where a piece gets large.
 *
 * @param {unknown} texts an iterable or async iterable of strings and arrays of token ids
 * @param {number} size
 * @param {number} vocabSize
 * @returns {AsyncGenerator<Text[]>}
 */
export async function* gather(texts, size, vocabSize) {
  /** @type {Text[]} */
  let piece = [];
  let index = 0;
  let chars = 0;
  for await (const item of checkIterable(texts, true)) {
    const text = checkText(item, index++, vocabSize);
    if (piece.length > 0 && (piece.length >= size || chars + text.length > MAX_PIECE_CHARS)) {
      yield piece;
      piece = [];
      chars = 0;
    }
    piece.push(text);
    chars += text.length;
  }
  if (piece.length > 0) yield piece;
}

/**
 * @param {unknown} texts
 * @param {boolean} allowAsync
 * @returns {any}
 */
function checkIterable(texts, allowAsync) {
  if (typeof texts === "object" && texts !== null && !ArrayBuffer.isView(texts)) {
    if (Symbol.iterator in texts && !(texts instanceof Map)) return texts;
    if (allowAsync && Symbol.asyncIterator in texts) return texts;
  }
  const expected = allowAsync ? "an iterable of strings" : "a string or an iterable of strings";
  throw new InvalidType(`texts is ${kindOf(texts)}, expected ${expected}`);
}
