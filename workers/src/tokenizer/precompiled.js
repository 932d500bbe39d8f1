/**
 * The character map of a sentencepiece model, as the tokenizers in Rust apply it.
 *
 * It is a double-array trie over UTF-8 (Aoe 1989, in the layout of Yata's darts-clone) from
 * strings to their replacements. The replacement of a short grapheme is that of its shortest
 * prefix in the trie, which is odd but what the models were trained with.
 */
import { ArtifactUnsupported } from "../errors.js";

const MAX_GRAPHEME_BYTES = 5;

/** Applies a `precompiled_charsmap`. */
export class CharacterMap {
  #trie;
  /** Replacements, each ended by a zero byte. */
  #replacements;
  #segmenter;
  #encoder = new TextEncoder();
  #decoder = new TextDecoder();

  /** @param {string} charsmap in Base64 */
  constructor(charsmap) {
    if (typeof Intl === "undefined" || !("Segmenter" in Intl)) {
      throw new ArtifactUnsupported(
        "the tokenizer needs Intl.Segmenter, which this host lacks; use a newer one",
      );
    }
    this.#segmenter = new Intl.Segmenter("und", { granularity: "grapheme" });
    const bytes = Uint8Array.from(atob(charsmap), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const size = view.getUint32(0, true);
    this.#trie = Uint32Array.from({ length: size >> 2 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.#replacements = bytes.subarray(4 + size);
  }

  /** @param {string} text */
  normalize(text) {
    let out = "";
    for (const { segment } of this.#segmenter.segment(text)) {
      const bytes = this.#encoder.encode(segment);
      const whole = bytes.length <= MAX_GRAPHEME_BYTES ? this.#replacement(bytes) : null;
      out += whole ?? Array.from(segment, (c) => this.#character(c)).join("");
    }
    return out;
  }

  /** @param {string} character */
  #character(character) {
    return this.#replacement(this.#encoder.encode(character)) ?? character;
  }

  /**
   * What replaces the shortest prefix that the trie knows.
   *
   * @param {Uint8Array} key
   * @returns {string | null}
   */
  #replacement(key) {
    const trie = this.#trie;
    let at = offsetOf(trie[0]);
    for (const byte of key) {
      if (byte === 0) return null;
      at ^= byte;
      const unit = trie[at];
      if (unit === undefined || labelOf(unit) !== byte) return null;
      at ^= offsetOf(unit);
      if (hasLeaf(unit)) {
        const start = trie[at] & 0x7fffffff;
        const end = this.#replacements.indexOf(0, start);
        return this.#decoder.decode(this.#replacements.subarray(start, end < 0 ? undefined : end));
      }
    }
    return null;
  }
}

/** @param {number} unit */
const hasLeaf = (unit) => ((unit >>> 8) & 1) === 1;

/** The byte that leads to a unit; a value's is none. @param {number} unit */
const labelOf = (unit) => (unit & 0x800000ff) >>> 0;

/** @param {number} unit */
const offsetOf = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
