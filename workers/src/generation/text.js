/** Token ids to text while they come: no broken character, no trace of a stop string. */

/**
 * Ids to text, special tokens left out.
 *
 * @typedef {(ids: readonly number[]) => string} Decode
 */

const BROKEN = "\ufffd";

/**
 * Text of a growing list of ids; what `feed` and `flush` return joins to its decoding
 * (byte-fallback tokens that make no UTF-8 excepted: they undo their neighbours' text).
 *
 * A character whose bytes are spread over several tokens comes with the last of them. How a
 * token reads can depend on the one before it (a leading space, say), so the decoder always
 * sees the tokens of the last piece as well.
 */
export class Detokenizer {
  #decode;
  /** Tokens of the last piece, and those that are not read yet. @type {number[]} */
  #ids = [];
  /** How many of them are the last piece's. */
  #seen = 0;
  /** Text of the last piece's tokens. */
  #before = "";

  /** @param {Decode} decode */
  constructor(decode) {
    this.#decode = decode;
  }

  /**
   * Take in a token.
   *
   * @param {number} tokenId
   * @returns {string} the text that is certain now
   */
  feed(tokenId) {
    this.#ids.push(tokenId);
    const text = this.#decode(this.#ids);
    if (text.endsWith(BROKEN) || text.length <= this.#before.length) return "";
    return this.#advance(text);
  }

  /** The end: what was held back, a broken character as U+FFFD. */
  flush() {
    return this.#seen === this.#ids.length ? "" : this.#advance(this.#decode(this.#ids));
  }

  /** @param {string} text of all tokens held */
  #advance(text) {
    const piece = text.slice(this.#before.length);
    this.#ids = this.#ids.slice(this.#seen);
    this.#seen = this.#ids.length;
    this.#before = this.#decode(this.#ids);
    return piece;
  }
}

/** Passes text on until a stop string appears in it, across whatever borders. */
export class StopMatcher {
  stopped = false;

  #stops;
  #held = "";

  /** @param {readonly string[]} stops none of them empty */
  constructor(stops) {
    this.#stops = stops;
  }

  /**
   * What may be shown of the text so far; nothing from the first stop string on.
   *
   * @param {string} text
   */
  feed(text) {
    if (this.stopped) return "";
    text = this.#held + text;
    const found = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.stopped = true;
      this.#held = "";
      return text.slice(0, Math.min(...found));
    }
    const shown = text.length - this.#overlap(text);
    this.#held = text.slice(shown);
    return text.slice(0, shown);
  }

  /** The end without a stop string: what only looked like the start of one. */
  flush() {
    const held = this.#held;
    this.#held = "";
    return held;
  }

  /**
   * Length of the longest end of `text` that a stop string begins with.
   *
   * @param {string} text
   */
  #overlap(text) {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let n = Math.min(stop.length - 1, text.length); n > longest; n--) {
        if (text.endsWith(stop.slice(0, n))) longest = n;
      }
    }
    return longest;
  }
}

/** A sample's ids as the text that its owner sees. */
export class TextReader {
  #tokens;
  #stops;

  /**
   * @param {Decode} decode
   * @param {readonly string[]} stops
   */
  constructor(decode, stops) {
    this.#tokens = new Detokenizer(decode);
    this.#stops = stops.length > 0 ? new StopMatcher(stops) : null;
  }

  /** A stop string appeared. */
  get stopped() {
    return this.#stops?.stopped ?? false;
  }

  /** @param {number} tokenId */
  feed(tokenId) {
    const text = this.#tokens.feed(tokenId);
    return this.#stops === null ? text : this.#stops.feed(text);
  }

  flush() {
    const text = this.#tokens.flush();
    return this.#stops === null ? text : this.#stops.feed(text) + this.#stops.flush();
  }
}
