/** Checking what callers pass as texts, and cutting it into pieces. */
import { kindOf } from "../checks.js";
import { InvalidType } from "../errors.js";

export const MAX_PIECE_TEXTS = 128;
const MAX_PIECE_CHARS = 1 << 18;

/**
 * @param {unknown} text
 * @param {number} index
 * @returns {string}
 */
function checkText(text, index) {
  if (typeof text === "string") return text;
  throw new InvalidType(`texts[${index}] is ${kindOf(text)}, expected a string`);
}

/**
 * The texts of a call.
 *
 * @param {unknown} texts a string, or an iterable of strings
 * @returns {string[]}
 */
export function checkTexts(texts) {
  if (typeof texts === "string") return [texts];
  return Array.from(checkIterable(texts, false), checkText);
}

/**
 * Cut `texts` where a count or a number of characters is reached.
 *
 * @param {readonly string[]} texts
 * @param {number} maxTexts
 * @returns {Generator<readonly string[]>}
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
 * @param {unknown} texts an iterable or async iterable of strings
 * @param {number} size
 * @returns {AsyncGenerator<string[]>}
 */
export async function* gather(texts, size) {
  /** @type {string[]} */
  let piece = [];
  let index = 0;
  let chars = 0;
  for await (const item of checkIterable(texts, true)) {
    const text = checkText(item, index++);
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
