/**
 * Where the JavaScript tokenizers decide otherwise than the ones in Rust, which made the
 * model's training data and are the truth, their parts are corrected. Tests compare both on
 * every code point and on random texts.
 */
import {
  BertNormalizer,
  BertPreTokenizer,
  ByteLevelPreTokenizer,
  DigitsPreTokenizer,
  PrecompiledNormalizer,
} from "./libraries.js";
import { CharacterMap } from "./precompiled.js";
import { MARKS, PUNCTUATION, REMOVED, SPACES } from "./unicode.js";

/** @typedef {import("./libraries.js").FastTokenizer} FastTokenizer */

const BERT_WORDS = new RegExp(`[^${SPACES}${PUNCTUATION}]+|[${PUNCTUATION}]`, "gu");
const BERT_REMOVED = new RegExp(`[${REMOVED}]`, "gu");
const BERT_SPACES = new RegExp(`[${SPACES}]`, "gu");
const BERT_MARKS = new RegExp(`[${MARKS}]`, "gu");

const BYTE_LEVEL_WORDS =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

const CJK = new RegExp(
  "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b73f}\\u{2b740}-\\u{2b81f}" +
    "\\u{2b920}-\\u{2ceaf}\\uf900-\\ufaff\\u{2f800}-\\u{2fa1f}]",
  "gu",
);
/**
 * @typedef {object} BertOptions
 * @property {boolean} [clean_text]
 * @property {boolean} [handle_chinese_chars]
 * @property {boolean | null} [strip_accents]
 * @property {boolean} [lowercase]
 */

/**
 * Text as BERT's normalizer in Rust leaves it.
 *
 * @param {string} text
 * @param {BertOptions} options
 */
export function normalizeBert(text, options) {
  const { clean_text, handle_chinese_chars, strip_accents, lowercase } = options;
  if (clean_text) text = text.replace(BERT_REMOVED, "").replace(BERT_SPACES, " ");
  if (handle_chinese_chars) text = text.replace(CJK, " $& ");
  if (strip_accents ?? lowercase) text = text.normalize("NFD").replace(BERT_MARKS, "");
  // Character by character: no final sigma
  if (lowercase) text = text.replaceAll("Σ", "σ").toLowerCase();
  return text;
}

/**
 * Correct a tokenizer's parts in place.
 *
 * @param {FastTokenizer} tokenizer
 */
export function repair(tokenizer) {
  for (const part of partsOf(tokenizer.normalizer, "normalizers")) {
    if (part instanceof BertNormalizer) {
      const options = /** @type {BertOptions} */ (part.config);
      part.normalize = (text) => normalizeBert(text, options);
    } else if (part instanceof PrecompiledNormalizer && part.config.precompiled_charsmap) {
      const map = new CharacterMap(part.config.precompiled_charsmap);
      part.normalize = (text) => map.normalize(text);
    }
  }
  for (const part of partsOf(tokenizer.pre_tokenizer, "tokenizers")) {
    if (part instanceof BertPreTokenizer) part.pattern = BERT_WORDS;
    else if (part instanceof ByteLevelPreTokenizer) part.pattern = BYTE_LEVEL_WORDS;
    else if (part instanceof DigitsPreTokenizer) {
      // Every number of Unicode is a digit
      const { individual_digits: single } = part.config;
      part.pattern = single ? /\P{N}+|\p{N}/gu : /\P{N}+|\p{N}+/gu;
    }
  }
}

/**
 * A part, or those of a sequence of them.
 *
 * @param {unknown} part
 * @param {string} members the property that holds a sequence's
 * @returns {unknown[]}
 */
function partsOf(part, members) {
  if (part === null || part === undefined) return [];
  const inner = /** @type {Record<string, unknown>} */ (part)[members];
  return Array.isArray(inner) ? inner.flatMap((p) => partsOf(p, members)) : [part];
}
