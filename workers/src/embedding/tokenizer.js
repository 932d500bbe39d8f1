/** Text to token ids, exactly as the model's own tokenizer makes them. */
import { checkUnicode } from "../checks.js";
import { ArtifactCorrupt } from "../errors.js";
import { loadTokenizer, parseTokenizer } from "../tokenizer/load.js";

/**
 * The tokens of one text.
 *
 * @typedef {object} Encoded
 * @property {readonly number[]} ids at most `maxTokens`, special tokens included
 * @property {number} numTokens tokens before truncation, special tokens included
 * @property {boolean} [hasPrompt] false for ids that the caller brought
 */

/**
 * What an embedding model needs of a tokenizer.
 *
 * @typedef {object} Tokenizer
 * @property {number} maxTokens where `encode` truncates
 * @property {(text: string, what: string) => Encoded} encode tokenizes a text, special tokens
 *   added, truncated at the end; throws `InvalidInput`, which says `what`, for a text that
 *   has no UTF-8 form
 * @property {(prompt: string) => number} promptLength leading tokens that `prompt` takes when
 *   text follows it
 */

/**
 * A `Tokenizer` over `tokenizer.json`, the only source of truth. Truncation is the usual one:
 * from the right, special tokens kept.
 *
 * @implements {Tokenizer}
 */
export class HFTokenizer {
  #fast;
  /** Special tokens around a text. @type {{before: number[], after: number[]}} */
  #frame;
  #special;

  /**
   * @param {Uint8Array} bytes content of `tokenizer.json`
   * @param {number} maxTokens longest output, special tokens included
   * @throws {ArtifactCorrupt} the file is not a tokenizer that the library can load, or its
   *   special tokens alone exceed `maxTokens`
   */
  constructor(bytes, maxTokens) {
    this.#fast = loadTokenizer(parseTokenizer(bytes));
    const added = [...this.#fast.get_added_tokens_decoder().values()];
    this.#special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.#frame = this.#findFrame();
    this.maxTokens = maxTokens;
    const numAdded = this.#frame.before.length + this.#frame.after.length;
    if (numAdded >= maxTokens) {
      throw new ArtifactCorrupt(
        `tokenizer.json adds ${numAdded} special tokens, the model's limit is ${maxTokens} tokens; ` +
          "nothing would be left for text",
      );
    }
  }

  /**
   * @param {string} text
   * @param {string} what names the text in messages
   * @returns {Encoded}
   */
  encode(text, what) {
    checkUnicode(text, what);
    const { before, after } = this.#frame;
    const ids = this.#plain(text);
    const room = this.maxTokens - before.length - after.length;
    const cut = ids.length > room ? ids.slice(0, room) : ids;
    const numTokens = before.length + ids.length + after.length;
    return { ids: [...before, ...cut, ...after], numTokens };
  }

  /**
   * The prompt's own tokens without a closing special one.
   *
   * @param {string} prompt
   */
  promptLength(prompt) {
    const { ids } = this.encode(prompt, "prompt");
    const last = ids.at(-1);
    return ids.length - (last !== undefined && this.#special.has(last) ? 1 : 0);
  }

  /** @param {string} text */
  #plain(text) {
    return this.#fast.encode(text, { add_special_tokens: false }).ids;
  }

  /** What the tokenizer's template puts before and after a text. */
  #findFrame() {
    const probe = "a";
    const plain = this.#plain(probe);
    const { ids } = this.#fast.encode(probe);
    const from = ids.findIndex((_, i) => plain.every((id, j) => ids[i + j] === id));
    return { before: ids.slice(0, from), after: ids.slice(from + plain.length) };
  }
}
