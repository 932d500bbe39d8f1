/**
 * The checks of a step's cache, wanted rows and sampling (docs/design.md, 7.2). Mirrors
 * `runtime_py/executors/check_generation.py`.
 */
import { InvalidInput, InvalidType } from "../errors.js";
import { KV_BLOCK } from "../program/ops.js";
import { SamplingChecker } from "./check-sampling.js";
import { isCount, isIntegers } from "./integers.js";
import { StampSet } from "./stamps.js";

/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepLimits} StepLimits */
/** @typedef {Int32Array | readonly number[]} Integers */

/** @type {readonly number[]} */
const NONE = Object.freeze([]);

export class GenerationChecker {
  #kvBlocks;
  #maxWanted;
  #sampling;
  #written;
  #sources;

  /**
   * @param {import("./check.js").Bounds} bounds
   * @param {StepLimits} limits
   */
  constructor({ vocabSize }, { kvBlocks, maxWanted }) {
    this.#kvBlocks = kvBlocks;
    this.#maxWanted = maxWanted;
    this.#sampling = new SamplingChecker(vocabSize, maxWanted);
    this.#written = new StampSet(kvBlocks);
    this.#sources = new StampSet(kvBlocks);
  }

  /**
   * @param {Step} step after the checks of its counts and rows
   * @throws {InvalidInput}
   */
  check(step) {
    const { copies = NONE, wanted = NONE, sampling = null } = step;
    this.#checkTables(step);
    for (const [name, list] of /** @type {const} */ ([
      ["copies", copies],
      ["wanted", wanted],
    ])) {
      if (!isIntegers(list)) {
        throw new InvalidType(`step.${name} is ${typeof list}, expected an Int32Array or array`);
      }
    }
    if (copies.length > 0) this.#checkCopies(copies);
    this.#checkWanted(wanted, step.tokenIds.length);
    if (sampling !== null) this.#sampling.check(sampling, wanted.length);
  }

  /**
   * Block tables cover their sequences, blocks exist, nobody writes another's block.
   *
   * @param {Step} step
   */
  #checkTables({ seqs, blockTables = [] }) {
    if (!Array.isArray(blockTables) || blockTables.length !== seqs.length) {
      throw new InvalidInput(
        `blockTables has ${blockTables?.length} tables, expected ${seqs.length}, one per sequence`,
      );
    }
    const kvBlocks = this.#kvBlocks;
    this.#written.clear();
    for (let i = 0; i < seqs.length; i++) {
      const { numTokens, contextLen = 0 } = seqs[i];
      const table = blockTables[i];
      const end = contextLen + numTokens;
      const blocks = Math.ceil(end / KV_BLOCK);
      if (blocks > kvBlocks) {
        throw new InvalidInput(
          `sequence ${i} has ${end} tokens, expected at most ${kvBlocks * KV_BLOCK}: the cache ` +
            `has ${kvBlocks} blocks`,
        );
      }
      if (!isIntegers(table)) {
        throw new InvalidType(
          `block table ${i} is ${typeof table}, expected an Int32Array or array`,
        );
      }
      if (table.length < blocks) {
        throw new InvalidInput(
          `block table ${i} has ${table.length} blocks, expected at least ${blocks} for ${end} tokens`,
        );
      }
      const firstWritten = Math.floor(contextLen / KV_BLOCK);
      for (let b = 0; b < blocks; b++) {
        const block = table[b];
        if (!isCount(block) || block >= kvBlocks) {
          throw new InvalidInput(
            `block table ${i} has block ${String(block)}, expected 0 to ${kvBlocks - 1}`,
          );
        }
        if (b >= firstWritten && !this.#written.add(block)) {
          throw new InvalidInput(
            `sequences ${writerOf(block, seqs, blockTables)} and ${i} both write block ${block}, ` +
              "expected a block of its own for each; copy it",
          );
        }
      }
    }
  }

  /**
   * Copied blocks exist; their destinations are written once and never read.
   *
   * @param {Integers} copies
   */
  #checkCopies(copies) {
    if (copies.length % 2 !== 0) {
      throw new InvalidInput(`copies has ${copies.length} numbers, expected two per copy`);
    }
    this.#sources.clear();
    for (let at = 0; at < copies.length; at++) {
      if (!isCount(copies[at]) || copies[at] >= this.#kvBlocks) {
        throw new InvalidInput(
          `copy ${at >> 1} is ${at % 2 ? "to" : "from"} block ${String(copies[at])}, expected 0 ` +
            `to ${this.#kvBlocks - 1}`,
        );
      }
      if (at % 2 === 0) this.#sources.add(copies[at]);
    }
    this.#written.clear();
    for (let at = 1; at < copies.length; at += 2) {
      if (this.#sources.has(copies[at]) || !this.#written.add(copies[at])) {
        throw new InvalidInput(
          `copy ${at >> 1} is to block ${copies[at]}, expected a block that no other copy ` +
            "writes or reads",
        );
      }
    }
  }

  /**
   * @param {Integers} wanted
   * @param {number} tokens
   */
  #checkWanted(wanted, tokens) {
    if (wanted.length > this.#maxWanted) {
      throw new InvalidInput(
        `wanted has ${wanted.length} rows, expected at most ${this.#maxWanted}`,
      );
    }
    let last = -1;
    for (let i = 0; i < wanted.length; i++) {
      const row = wanted[i];
      if (!isCount(row) || row <= last || row >= tokens) {
        throw new InvalidInput(
          `wanted row ${i} is token ${String(row)}, expected ${last + 1} to ${tokens - 1} in ` +
            "ascending order",
        );
      }
      last = row;
    }
  }
}

/**
 * The first sequence that writes a block.
 *
 * @param {number} block
 * @param {Step["seqs"]} seqs
 * @param {readonly Integers[]} tables
 */
function writerOf(block, seqs, tables) {
  return tables.findIndex((table, i) => {
    const { contextLen = 0, numTokens } = seqs[i];
    const end = Math.ceil((contextLen + numTokens) / KV_BLOCK);
    return table.slice(Math.floor(contextLen / KV_BLOCK), end).includes(block);
  });
}
