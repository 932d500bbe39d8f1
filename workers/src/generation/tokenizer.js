/** What generation needs of a tokenizer: prompts in, text out, and nothing forged. */
import { checkUnicode } from "../checks.js";
import { loadTokenizer, parseTokenizer } from "../tokenizer/load.js";

/** @typedef {import("../tokenizer/libraries.js").FastTokenizer} FastTokenizer */

/**
 * Ids of a prompt and text of ids.
 *
 * @typedef {object} TextTokenizer
 * @property {readonly string[]} controlTokens texts of the special tokens, longest first
 * @property {(text: string) => number[]} encode ids of a plain prompt, with what the model
 *   puts before one; control tokens count
 * @property {(text: string, guard: string) => number[]} encodeChat ids of a rendered chat. A
 *   control token that holds `guard` after its first character is text; `guard` itself is
 *   left out
 * @property {(ids: readonly number[]) => string} decode text of ids; special tokens are left
 *   out
 * @property {(id: number) => string} [tokenText] text of one token, special or not
 */

/**
 * A `TextTokenizer` over `tokenizer.json`.
 *
 * @implements {TextTokenizer}
 */
export class HFTextTokenizer {
  #json;
  #fast;
  /** Reads special tokens as text; made when it is first needed. @type {FastTokenizer | null} */
  #plain = null;
  /** @type {Map<string, number>} */
  #special;
  #vocabSize;

  /**
   * @param {Uint8Array} bytes content of the file
   * @throws {ArtifactCorrupt} the library cannot load it
   */
  constructor(bytes) {
    this.#json = parseTokenizer(bytes);
    this.#fast = loadTokenizer(this.#json);
    this.#vocabSize = this.#fast.model.vocab.length;
    const added = [...this.#fast.get_added_tokens_decoder().values()];
    const special = added.filter((token) => token.special);
    this.#special = new Map(special.map(({ content, id }) => [content, id]));
    this.controlTokens = [...this.#special.keys()].sort((a, b) => b.length - a.length);
  }

  /** @param {string} text */
  encode(text) {
    checkUnicode(text, "the prompt");
    return this.#fast.encode(text).ids;
  }

  /**
   * @param {string} text
   * @param {string} guard
   */
  encodeChat(text, guard) {
    checkUnicode(text, "the prompt");
    if (!text.includes(guard)) return idsOf(this.#fast, text);
    this.#plain ??= loadTokenizer({
      ...this.#json,
      added_tokens: this.#json.added_tokens.filter((/** @type {any} */ token) => !token.special),
    });
    const plain = this.#plain;
    return this.#parts(text).flatMap((part) => {
      const id = this.#special.get(part);
      return id === undefined ? idsOf(plain, part.replaceAll(guard, "")) : [id];
    });
  }

  /** @param {readonly number[]} ids */
  decode(ids) {
    // The library refuses an empty list, and reads ids beyond the vocabulary as unknown words
    const known = ids.filter((id) => id < this.#vocabSize);
    return known.length > 0 ? this.#fast.decode(known, { skip_special_tokens: true }) : "";
  }

  /** @param {number} id */
  tokenText(id) {
    if (id < 0 || id >= this.#vocabSize) return "";
    return this.#fast.decode([id], { skip_special_tokens: false });
  }

  /**
   * The text, cut at its control tokens, which are parts themselves.
   *
   * @param {string} text
   */
  #parts(text) {
    const tokens = this.controlTokens.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const parts = text.split(new RegExp(`(${tokens.join("|")})`, "u"));
    return parts.filter((part) => part !== "");
  }
}

/**
 * @param {FastTokenizer} tokenizer
 * @param {string} text
 * @returns {number[]}
 */
function idsOf(tokenizer, text) {
  return tokenizer.encode(text, { add_special_tokens: false }).ids;
}
