/** A fixed number of blocks, their reference counts, and the order of their reuse. */
import { InvalidInput } from "../../errors.js";

const END = -1;

/**
 * Blocks 0 .. numBlocks - 1; every one is either referenced or in the free list.
 *
 * The free list is a doubly linked list in arrays. Blocks that hold nothing worth keeping
 * enter at the front, blocks that the prefix cache knows at the back, and allocation takes
 * the front: cached blocks survive as long as they can and go least recently released first.
 */
export class BlockPool {
  #refs;
  #next;
  #prev;
  #front = 0;
  #back;
  #numFree;

  /** @param {number} numBlocks blocks that the backend has allocated */
  constructor(numBlocks) {
    if (!Number.isInteger(numBlocks) || numBlocks < 1) {
      throw new InvalidInput(`numBlocks is ${String(numBlocks)}, expected a positive whole number`);
    }
    this.#refs = new Int32Array(numBlocks);
    this.#next = Int32Array.from({ length: numBlocks }, (_, i) => i + 1);
    this.#next[numBlocks - 1] = END;
    this.#prev = Int32Array.from({ length: numBlocks }, (_, i) => i - 1);
    this.#back = numBlocks - 1;
    this.#numFree = numBlocks;
  }

  get numBlocks() {
    return this.#refs.length;
  }

  /** Blocks that nobody references, cached ones included. */
  get numFree() {
    return this.#numFree;
  }

  /**
   * How many block tables list `block`.
   *
   * @param {number} block
   */
  refs(block) {
    return this.#refs[block];
  }

  /** Take the front of the free list, with one reference; callers look at `numFree` first. */
  allocate() {
    const block = this.#front;
    if (block === END) throw new RangeError("no free block");
    this.#unlink(block);
    this.#refs[block] = 1;
    return block;
  }

  /**
   * Add a reference; a free block leaves the free list with its contents.
   *
   * @param {number} block
   */
  retain(block) {
    if (this.#refs[block] === 0) this.#unlink(block);
    this.#refs[block] += 1;
  }

  /**
   * Drop a reference; with the last one the block becomes free.
   *
   * @param {number} block a referenced block
   * @param {boolean} keep its contents are cached, so it should be reused last
   */
  release(block, keep) {
    if (this.#refs[block] < 1) throw new Error(`block ${block} was released but nobody holds it`);
    this.#refs[block] -= 1;
    if (this.#refs[block] === 0) this.#link(block, keep);
  }

  /**
   * The contents of `block` are worth nothing any more: a free one is reused first.
   *
   * @param {number} block
   */
  forget(block) {
    if (this.#refs[block] === 0) {
      this.#unlink(block);
      this.#link(block, false);
    }
  }

  /** Throw unless the list and the counts agree; O(numBlocks). */
  check() {
    let seen = 0;
    let block = this.#front;
    let before = END;
    while (block !== END && seen <= this.#refs.length) {
      if (this.#refs[block] !== 0 || this.#prev[block] !== before) {
        throw new Error(`the free list is broken at block ${block}`);
      }
      seen += 1;
      before = block;
      block = this.#next[block];
    }
    const unreferenced = this.#refs.reduce((count, n) => count + (n === 0 ? 1 : 0), 0);
    if (seen !== unreferenced || seen !== this.#numFree || before !== this.#back) {
      throw new Error(
        `${seen} blocks in the free list, ${unreferenced} without references, ` +
          `${this.#numFree} counted as free`,
      );
    }
  }

  /** @param {number} block */
  #unlink(block) {
    const before = this.#prev[block];
    const after = this.#next[block];
    if (before === END) this.#front = after;
    else this.#next[before] = after;
    if (after === END) this.#back = before;
    else this.#prev[after] = before;
    this.#numFree -= 1;
  }

  /**
   * @param {number} block
   * @param {boolean} atBack
   */
  #link(block, atBack) {
    const before = atBack ? this.#back : END;
    const after = atBack ? END : this.#front;
    this.#prev[block] = before;
    this.#next[block] = after;
    if (before === END) this.#front = block;
    else this.#next[before] = block;
    if (after === END) this.#back = block;
    else this.#prev[after] = block;
    this.#numFree += 1;
  }
}
