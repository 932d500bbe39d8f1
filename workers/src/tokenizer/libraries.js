/**
 * The packages that the engine is built on, named in this file only. A page without a bundler
 * maps the two names with an import map.
 */
import * as library from "@huggingface/tokenizers";

export { Template } from "@huggingface/jinja";

/**
 * What is used of a tokenizer of the library (whose own types need a bundler's resolution).
 *
 * @typedef {object} FastTokenizer
 * @property {unknown} normalizer
 * @property {unknown} pre_tokenizer
 * @property {{vocab: readonly string[]}} model
 * @property {(text: string, options?: {add_special_tokens?: boolean}) => {ids: number[]}} encode
 * @property {(ids: readonly number[], options: {skip_special_tokens: boolean}) => string} decode
 * @property {() => Map<number, {content: string, id: number, special: boolean}>}
 *   get_added_tokens_decoder
 */

/** @typedef {{config: any, normalize: (text: string) => string}} Normalizer */
/** @typedef {{config: any, pattern: RegExp}} PreTokenizer */

const found = /** @type {any} */ (library);

/** @type {new (json: unknown, config: object) => FastTokenizer} */
export const Tokenizer = found.Tokenizer;
/** @type {new (config: object) => Normalizer} */
export const BertNormalizer = found.BertNormalizer;
/** @type {new (config: object) => Normalizer} */
export const PrecompiledNormalizer = found.PrecompiledNormalizer;
/** @type {new (config: object) => PreTokenizer} */
export const BertPreTokenizer = found.BertPreTokenizer;
/** @type {new (config: object) => PreTokenizer} */
export const ByteLevelPreTokenizer = found.ByteLevelPreTokenizer;
/** @type {new (config: object) => PreTokenizer} */
export const DigitsPreTokenizer = found.DigitsPreTokenizer;
