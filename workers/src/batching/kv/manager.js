/** Blocks of sequences: match a prefix, reserve slots, fork, preempt, release. */
import { InvalidInput } from "../../errors.js";
import { BlockPool } from "./block-pool.js";
import { PrefixCache } from "./prefix-cache.js";
import { KVSequence } from "./sequence.js";

/** @typedef {import("./prefix-cache.js").Node} Node */
/** @typedef {import("./sequence.js").BlockCopy} BlockCopy */

/**
 * Counters of a `KVManager`; tokens and blocks since the start unless said otherwise.
 *
 * @typedef {object} KVStats
 * @property {number} numBlocks now
 * @property {number} freeBlocks now
 * @property {number} cachedBlocks now, free or in use
 * @property {number} sequences now
 * @property {number} queriedTokens tokens of sequences that were started or resumed
 * @property {number} cachedTokens those of them that a cached prefix covered
 * @property {number} evictedBlocks cached blocks whose memory was taken for something else
 * @property {number} copiedBlocks copies that forks made necessary
 * @property {number} preemptions sequences whose blocks were taken away
 */

/** @type {readonly BlockCopy[]} */
const NO_COPIES = [];

/**
 * Owns every block of one model's cache.
 *
 * A sequence goes `start` -> (`reserve` -> step -> `computed` -> `append`)* -> `release`.
 * Only `reserve` takes memory, and it takes all that it needs or nothing. Release or
 * preempt a sequence only when no step that writes its blocks is in flight.
 */
export class KVManager {
  #pool;
  #cache;
  #caching;
  /** @type {Map<number, KVSequence>} */
  #sequences = new Map();
  /** Block: copies that are still to be made from it. @type {Map<number, number>} */
  #sources = new Map();
  #queried = 0;
  #hits = 0;
  #evicted = 0;
  #copied = 0;
  #preempted = 0;

  /**
   * @param {number} numBlocks blocks of the backend's cache
   * @param {number} blockSize tokens of a block
   * @param {object} [options]
   * @param {string} [options.model] its name, part of the prefix cache's namespace
   * @param {boolean} [options.prefixCaching] whether full blocks are found again
   * @param {import("./prefix-cache.js").TokenHash} [options.tokenHash] see `PrefixCache`
   */
  constructor(numBlocks, blockSize, { model = "", prefixCaching = true, tokenHash } = {}) {
    if (!Number.isInteger(blockSize) || blockSize < 1) {
      throw new InvalidInput(`blockSize is ${String(blockSize)}, expected a positive whole number`);
    }
    this.blockSize = blockSize;
    this.#pool = new BlockPool(numBlocks);
    this.#cache = new PrefixCache(blockSize, model, tokenHash);
    this.#caching = prefixCaching;
  }

  /** Blocks that `reserve` can take, cached ones included. */
  get freeBlocks() {
    return this.#pool.numFree;
  }

  /** @returns {KVStats} */
  get stats() {
    return {
      numBlocks: this.#pool.numBlocks,
      freeBlocks: this.#pool.numFree,
      cachedBlocks: this.#cache.size,
      sequences: this.#sequences.size,
      queriedTokens: this.#queried,
      cachedTokens: this.#hits,
      evictedBlocks: this.#evicted,
      copiedBlocks: this.#copied,
      preemptions: this.#preempted,
    };
  }

  /**
   * What starting a sequence and reserving its first step would take; changes nothing.
   *
   * @param {readonly number[]} tokens its ids
   * @param {number} numTokens tokens of the first step, after the cached ones
   * @param {string} [salt] its tenant
   * @returns {{cached: number, blocks: number}} tokens that are cached, and free blocks
   *   that it would use up
   */
  cost(tokens, numTokens, salt = "") {
    const chain = this.#match(tokens, salt);
    const cached = chain.length * this.blockSize;
    const total = this.#blocksFor(Math.min(cached + numTokens, tokens.length));
    let shared = 0;
    for (const node of chain) if (this.#pool.refs(node.block) > 0) shared += 1;
    return { cached, blocks: total - shared };
  }

  /**
   * Begin a sequence, holding on to the cached blocks of its prefix. At least the last
   * token is left to compute, since its logits are wanted.
   *
   * @param {number} seqId a new number
   * @param {readonly number[]} tokens ids, at least one
   * @param {string} [salt] namespace of its tenant; caches of different salts are not shared
   * @returns {number} how many tokens are cached: the first to compute
   */
  start(seqId, tokens, salt = "") {
    this.#mustBeNew(seqId);
    if (tokens.length === 0) {
      throw new InvalidInput("a sequence has no tokens, expected at least one");
    }
    const seq = new KVSequence([...tokens], salt);
    this.#sequences.set(seqId, seq);
    return this.#attach(seq);
  }

  /**
   * Slots for the next `numTokens` known tokens of a sequence.
   *
   * A last block that another sequence shares is replaced by a copy of its own. Until
   * `computed` says that the step ran, the same copy is asked for again: a step may fail
   * before it is made, so its source is kept as long.
   *
   * @param {number} seqId
   * @param {number} numTokens
   * @returns {readonly BlockCopy[] | null} copies to be made before anything of the step is
   *   written; null, with nothing changed, if too few blocks are free
   */
  reserve(seqId, numTokens) {
    const seq = this.sequence(seqId);
    const left = seq.tokens.length - seq.computed;
    if (!(numTokens >= 1 && numTokens <= left)) {
      throw new InvalidInput(
        `${numTokens} tokens asked for sequence ${seqId}, expected 1 to ${left}`,
      );
    }
    const { blocks } = seq;
    const end = this.#blocksFor(seq.computed + numTokens);
    /** @type {number[]} */
    const shared = [];
    for (let i = Math.floor(seq.computed / this.blockSize); i < blocks.length; i++) {
      if (this.#isShared(blocks[i])) shared.push(i);
    }
    if (Math.max(0, end - blocks.length) + shared.length > this.#pool.numFree) return null;
    for (const i of shared) {
      const source = blocks[i];
      const target = this.#allocate();
      blocks[i] = target;
      seq.changed = Math.min(seq.changed, i);
      if (seq.computed > i * this.blockSize) {
        // The sequence's reference to the source now stands for the copy
        seq.copy = [source, target];
        this.#sources.set(source, (this.#sources.get(source) ?? 0) + 1);
        this.#copied += 1;
      } else {
        this.#release(source);
      }
    }
    while (blocks.length < end) blocks.push(this.#allocate());
    seq.forked = seq.copy !== null;
    return seq.copy === null ? NO_COPIES : [seq.copy];
  }

  /**
   * How the block table differs from what the last call told.
   *
   * @param {number} seqId
   * @returns {{kept: number, blocks: readonly number[]}} entries at its start that stay,
   *   and the entries after them
   */
  changes(seqId) {
    const seq = this.sequence(seqId);
    const kept = seq.changed;
    seq.changed = seq.blocks.length;
    return { kept, blocks: seq.blocks.slice(kept) };
  }

  /**
   * `computed` for the last known token, then `append`, of a sequence that lives.
   *
   * @param {KVSequence} seq
   * @param {number} token
   */
  advance(seq, token) {
    if (seq.copy !== null) this.#dropCopy(seq);
    seq.computed += 1;
    if (seq.computed % this.blockSize === 0 && this.#caching) this.#publish(seq);
    seq.tokens.push(token);
  }

  /**
   * A step wrote the keys and values of the next `numTokens` tokens. Blocks that are full
   * now can be found by others. A sequence that was released meanwhile is ignored.
   *
   * @param {number} seqId
   * @param {number} numTokens no more than were reserved
   */
  computed(seqId, numTokens) {
    const seq = this.#sequences.get(seqId);
    if (seq === undefined) return;
    const room = Math.min(seq.blocks.length * this.blockSize, seq.tokens.length) - seq.computed;
    if (!(numTokens >= 0 && numTokens <= room)) {
      throw new InvalidInput(
        `${numTokens} tokens computed for sequence ${seqId}, expected 0 to ${room}`,
      );
    }
    if (numTokens > 0) this.#dropCopy(seq);
    seq.computed += numTokens;
    if (this.#caching) this.#publish(seq);
  }

  /**
   * Begin `childId` as a twin of `seqId`, sharing all of its blocks. Whichever of them
   * first writes into the shared last block gets a copy of it from `reserve`; the last one
   * left writes in place.
   *
   * @param {number} seqId
   * @param {number} childId a new number
   */
  fork(seqId, childId) {
    const seq = this.sequence(seqId);
    this.#mustBeNew(childId);
    const child = new KVSequence([...seq.tokens], seq.salt);
    child.blocks = [...seq.blocks];
    child.computed = seq.computed;
    child.chain = seq.chain;
    child.node = seq.node;
    child.forked = seq.forked = true;
    if (seq.copy !== null) {
      // Not made yet: the child begins from its source as well
      const [source, target] = seq.copy;
      child.blocks[seq.blocks.indexOf(target)] = source;
    }
    for (const block of child.blocks) this.#pool.retain(block);
    this.#sequences.set(childId, child);
  }

  /**
   * Take a sequence's blocks away, keeping its tokens for `resume`.
   *
   * @param {number} seqId
   * @returns {number} how many computed tokens are lost, except for what stays cached
   */
  preempt(seqId) {
    const seq = this.sequence(seqId);
    const lost = seq.computed;
    this.#detach(seq);
    this.#preempted += 1;
    return lost;
  }

  /**
   * Start a preempted sequence again from its tokens.
   *
   * @param {number} seqId
   * @returns {number} as of `start`
   */
  resume(seqId) {
    const seq = this.sequence(seqId);
    if (seq.blocks.length > 0) {
      throw new InvalidInput(`sequence ${seqId} holds blocks, expected a preempted one`);
    }
    return this.#attach(seq);
  }

  /**
   * End a sequence, at any point; a second time, or an unknown one, does nothing.
   *
   * @param {number} seqId
   */
  release(seqId) {
    const seq = this.#sequences.get(seqId);
    if (seq === undefined) return;
    this.#sequences.delete(seqId);
    this.#detach(seq);
  }

  /**
   * `release`, and find none of its blocks again: their contents are not to be trusted.
   *
   * @param {number} seqId
   */
  discard(seqId) {
    const seq = this.#sequences.get(seqId);
    if (seq === undefined) return;
    for (const block of seq.blocks) this.#forget(block);
    this.release(seqId);
  }

  /**
   * The sequence itself, for reading.
   *
   * @param {number} seqId
   * @returns {KVSequence}
   */
  sequence(seqId) {
    const seq = this.#sequences.get(seqId);
    if (seq === undefined) throw new InvalidInput(`there is no sequence ${seqId}`);
    return seq;
  }

  /** Throw unless every reference is some sequence's; for tests. */
  check() {
    this.#pool.check();
    const held = new Int32Array(this.#pool.numBlocks);
    for (const seq of this.#sequences.values()) {
      for (const block of seq.blocks) held[block] += 1;
      if (seq.copy !== null) held[seq.copy[0]] += 1;
    }
    const wrong = held.findIndex((n, block) => n !== this.#pool.refs(block));
    if (wrong >= 0) throw new Error(`block ${wrong} has ${this.#pool.refs(wrong)} references`);
  }

  /** Throw if something leaked; to be called when no request is left. */
  checkIdle() {
    this.check();
    const { numFree, numBlocks } = this.#pool;
    if (this.#sequences.size > 0 || numFree !== numBlocks) {
      throw new Error(
        `idle, but ${this.#sequences.size} sequences hold ${numBlocks - numFree} blocks`,
      );
    }
  }

  /** @param {number} seqId */
  #mustBeNew(seqId) {
    if (this.#sequences.has(seqId)) {
      throw new InvalidInput(`sequence ${seqId} exists, expected a new number`);
    }
  }

  /** @param {number} numTokens */
  #blocksFor(numTokens) {
    return Math.ceil(numTokens / this.blockSize);
  }

  /**
   * @param {readonly number[]} tokens
   * @param {string} salt
   */
  #match(tokens, salt) {
    const longest = this.#caching ? Math.floor((tokens.length - 1) / this.blockSize) : 0;
    return this.#cache.match(salt, tokens, longest);
  }

  /** @param {KVSequence} seq */
  #attach(seq) {
    const chain = this.#match(seq.tokens, seq.salt);
    for (const node of chain) {
      this.#pool.retain(node.block);
      seq.blocks.push(node.block);
    }
    seq.chain = chain.length;
    seq.node = chain.at(-1) ?? null;
    seq.computed = chain.length * this.blockSize;
    seq.changed = 0;
    this.#queried += seq.tokens.length;
    this.#hits += seq.computed;
    return seq.computed;
  }

  /**
   * Last block first: of two cached blocks the longer prefix is evicted first.
   *
   * @param {KVSequence} seq
   */
  #detach(seq) {
    this.#dropCopy(seq);
    for (let i = seq.blocks.length - 1; i >= 0; i--) this.#release(seq.blocks[i]);
    seq.blocks = [];
    seq.computed = seq.chain = 0;
    seq.node = null;
  }

  /**
   * Whether more than one block table lists it.
   *
   * @param {number} block
   */
  #isShared(block) {
    return this.#pool.refs(block) - (this.#sources.get(block) ?? 0) > 1;
  }

  /**
   * The copy was made, or is not wanted any more.
   *
   * @param {KVSequence} seq
   */
  #dropCopy(seq) {
    if (seq.copy === null) return;
    const [source] = seq.copy;
    seq.copy = null;
    const copies = /** @type {number} */ (this.#sources.get(source)) - 1;
    if (copies > 0) this.#sources.set(source, copies);
    else this.#sources.delete(source);
    this.#release(source);
  }

  /** @param {number} block */
  #release(block) {
    this.#pool.release(block, this.#cache.holds(block));
  }

  #allocate() {
    const block = this.#pool.allocate();
    this.#forget(block);
    return block;
  }

  /** @param {number} block */
  #forget(block) {
    for (const gone of this.#cache.evict(block)) {
      this.#evicted += 1;
      this.#pool.forget(gone);
    }
  }

  /**
   * Tell the cache about the blocks that have become full.
   *
   * @param {KVSequence} seq
   */
  #publish(seq) {
    const full = Math.floor(seq.computed / this.blockSize);
    if (full === seq.chain) return;
    let { node } = seq;
    if (node === null || !node.alive) {
      // Its prefix was another sequence's and has been evicted: begin with its own
      seq.chain = 0;
      node = this.#cache.root(seq.salt);
    }
    for (let i = seq.chain; i < full; i++) {
      node = this.#cache.add(node, seq.tokens, i * this.blockSize, seq.blocks[i]);
    }
    seq.node = node;
    seq.chain = full;
  }
}
