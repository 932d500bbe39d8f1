/** What the manager knows of a sequence, and what it tells of one. */

/** @typedef {import("./prefix-cache.js").Node} Node */

/**
 * The backend copies all of block `source` to `target`, in every layer.
 *
 * @typedef {readonly [source: number, target: number]} BlockCopy
 */

/** A sequence in a `KVManager`; only the manager changes it. */
export class KVSequence {
  /** Its block table. @type {number[]} */
  blocks = [];
  /** Tokens whose keys and values are in its blocks. */
  computed = 0;
  /** First entry of the table that differs from what `changes` last told. */
  changed = 0;
  /** Of the block that `computed` lies in; not yet made. @type {BlockCopy | null} */
  copy = null;
  /** Its last block may be another's as well. */
  forked = false;
  /** Full blocks whose content the cache knows. */
  chain = 0;
  /** Node of the last of them. @type {Node | null} */
  node = null;

  /**
   * @param {number[]} tokens its known ids
   * @param {string} salt
   */
  constructor(tokens, salt) {
    this.tokens = tokens;
    this.salt = salt;
  }
}
