/**
 * Full blocks by the tokens that they, and everything before them, hold.
 *
 * The cache is a forest: one root per namespace, one node per full block, its parent the
 * block before. A node is looked up in a table keyed by a hash chained from its parent's
 * hash, and accepted only if its parent and its tokens are the wanted ones. So the hash
 * decides speed, never a result: a constant one is correct.
 */

/**
 * (parent's hash, tokens, first of them, end) -> hash, in 0 .. 2**32 - 1.
 *
 * @typedef {(seed: number, tokens: ArrayLike<number>, start: number, end: number) => number}
 *   TokenHash
 */

const FNV_OFFSET = 2166136261;
const FNV_PRIME = 16777619;

/**
 * FNV-1a over 32-bit lanes, one token a lane.
 *
 * @type {TokenHash}
 */
export function fnv1a(seed, tokens, start, end) {
  let value = seed;
  for (let i = start; i < end; i++) value = Math.imul(value ^ tokens[i], FNV_PRIME);
  return value >>> 0;
}

/** A cached block; the root of a namespace has block -1, no tokens, and a salt. */
export class Node {
  /** By block: constant-time removal, insertion order. @type {Map<number, Node>} */
  children = new Map();
  alive = true;
  salt = "";

  /**
   * @param {Node | null} parent
   * @param {number} hash
   * @param {number} block
   * @param {readonly number[]} tokens
   */
  constructor(parent, hash, block, tokens) {
    this.parent = parent;
    this.hash = hash;
    this.block = block;
    this.tokens = tokens;
  }
}

/** Which block holds the keys and values of which prefix. */
export class PrefixCache {
  #blockSize;
  #model;
  #hash;
  /** @type {Map<string, Node>} */
  #roots = new Map();
  /** @type {Map<number, Node[]>} */
  #table = new Map();
  /** @type {Map<number, Node>} */
  #byBlock = new Map();

  /**
   * @param {number} blockSize tokens of a full block
   * @param {string} model whose keys and values these are; part of every namespace
   * @param {TokenHash} [tokenHash] chains the hash; injectable, as only speed depends on it
   */
  constructor(blockSize, model, tokenHash = fnv1a) {
    this.#blockSize = blockSize;
    this.#model = model;
    this.#hash = tokenHash;
  }

  /** Cached blocks, referenced or free. */
  get size() {
    return this.#byBlock.size;
  }

  /**
   * Whether `block` can be found by its tokens.
   *
   * @param {number} block
   */
  holds(block) {
    return this.#byBlock.has(block);
  }

  /**
   * Start of every chain of one tenant; chains of different salts never meet.
   *
   * @param {string} salt
   * @returns {Node}
   */
  root(salt) {
    let root = this.#roots.get(salt);
    if (root === undefined) {
      const name = Array.from(`${this.#model}\0${salt}`, (c) => c.codePointAt(0) ?? 0);
      root = new Node(null, this.#hash(FNV_OFFSET, name, 0, name.length), -1, []);
      root.salt = salt;
      this.#roots.set(salt, root);
    }
    return root;
  }

  /**
   * The longest cached chain of full blocks at the start of `tokens`.
   *
   * @param {string} salt the tenant's namespace
   * @param {readonly number[]} tokens ids
   * @param {number} maxBlocks longest chain wanted
   * @returns {Node[]}
   */
  match(salt, tokens, maxBlocks) {
    /** @type {Node[]} */
    const chain = [];
    let node = this.#roots.get(salt);
    if (node === undefined) return chain;
    const size = this.#blockSize;
    const most = Math.min(maxBlocks, Math.floor(tokens.length / size));
    for (let i = 0; i < most; i++) {
      const found = this.#find(node, tokens, i * size);
      if (found === null) break;
      chain.push(found);
      node = found;
    }
    return chain;
  }

  /**
   * Make a full block findable, unless its content is cached already.
   *
   * @param {Node} parent a living node
   * @param {readonly number[]} tokens ids, of which those from `start` on are the block's
   * @param {number} start
   * @param {number} block where the keys and values are
   * @returns {Node} of this content: of `block`, or of the block that holds the same
   */
  add(parent, tokens, start, block) {
    const found = this.#find(parent, tokens, start);
    if (found !== null) return found;
    const end = start + this.#blockSize;
    const hash = this.#hash(parent.hash, tokens, start, end);
    const node = new Node(parent, hash, block, tokens.slice(start, end));
    const bucket = this.#table.get(hash);
    if (bucket === undefined) this.#table.set(hash, [node]);
    else bucket.push(node);
    this.#byBlock.set(block, node);
    parent.children.set(block, node);
    return node;
  }

  /**
   * Forget `block` and everything that only it leads to.
   *
   * @param {number} block
   * @returns {number[]} the blocks that are forgotten, `block` first
   */
  evict(block) {
    const first = this.#byBlock.get(block);
    if (first === undefined) return [];
    const { parent } = first;
    if (parent !== null) {
      parent.children.delete(block);
      if (parent.parent === null && parent.children.size === 0) {
        // Salts come and go; an empty namespace is not kept
        parent.alive = false;
        this.#roots.delete(parent.salt);
      }
    }
    /** @type {number[]} */
    const gone = [];
    const stack = [first];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      node.alive = false;
      const bucket = /** @type {Node[]} */ (this.#table.get(node.hash));
      bucket.splice(bucket.indexOf(node), 1);
      if (bucket.length === 0) this.#table.delete(node.hash);
      this.#byBlock.delete(node.block);
      gone.push(node.block);
      stack.push(...node.children.values());
    }
    return gone;
  }

  /**
   * @param {Node} parent
   * @param {readonly number[]} tokens
   * @param {number} start
   * @returns {Node | null}
   */
  #find(parent, tokens, start) {
    const hash = this.#hash(parent.hash, tokens, start, start + this.#blockSize);
    for (const node of this.#table.get(hash) ?? []) {
      if (node.parent === parent && node.tokens.every((id, i) => id === tokens[start + i])) {
        return node;
      }
    }
    return null;
  }
}
