/** A workspace of the wasm module: where a step is written and its result read. */
import { KV_BLOCK, Rows } from "../program/ops.js";
import { errorOf, Header, SampledRow, WorkspacePart } from "../wasm/abi.js";
import { writeSampling } from "./sampling.js";

/** @typedef {import("../wasm/instance.js").Runtime} Runtime */
/** @typedef {import("../program/format.js").ProgramInfo} ProgramInfo */
/** @typedef {import("../step.js").Sampled} Sampled */
/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepResult} StepResult */
/** @typedef {import("../step.js").TopLogprobs} TopLogprobs */

/** @type {readonly number[]} */
const NONE = Object.freeze([]);
const { HEADER, TOKENS, SEQS, OUTPUT, STATUS, TABLES } = WorkspacePart;
const { BLOCKS, COPIES, WANTED, SAMPLE, SAMPLE_DATA, SAMPLED } = WorkspacePart;

export class Workspace {
  #runtime;
  #ws;
  #slot;
  #isDecoder;
  /** @type {ArrayBufferLike | null} what the views are of */
  #buffer = null;
  /** @type {ReturnType<typeof viewsOf>} */
  #views;

  /**
   * @param {Runtime} runtime
   * @param {number} ws its number
   * @param {ProgramInfo} program
   */
  constructor(runtime, ws, { output, isDecoder }) {
    this.#runtime = runtime;
    this.#ws = ws;
    this.#slot = output;
    this.#isDecoder = isDecoder;
    this.#views = this.#attached();
  }

  /** The views, made anew if the memory grew, which detaches the old ones. */
  #attached() {
    const { buffer } = this.#runtime.memory;
    if (buffer !== this.#buffer) {
      this.#buffer = buffer;
      this.#views = viewsOf(buffer, this.#runtime.workspaces[this.#ws]);
    }
    return this.#views;
  }

  /**
   * @param {Step} step checked
   */
  write(step) {
    const { header, tokens, seqs } = this.#attached();
    const rows = step.seqs;
    header[Header.NUM_TOKENS] = step.tokenIds.length;
    header[Header.NUM_SEQS] = rows.length;
    tokens.set(step.tokenIds);
    for (let i = 0; i < rows.length; i++) {
      const { firstToken, numTokens, contextLen = 0, poolSkip = 0 } = rows[i];
      seqs[4 * i] = firstToken;
      seqs[4 * i + 1] = numTokens;
      seqs[4 * i + 2] = contextLen;
      seqs[4 * i + 3] = poolSkip;
    }
    if (this.#isDecoder) this.#writeGeneration(step);
  }

  /** @param {Step} step */
  #writeGeneration({ seqs, blockTables = [], copies = NONE, wanted = NONE, sampling = null }) {
    const views = this.#views;
    views.header[Header.NUM_WANTED] = wanted.length;
    views.header[Header.NUM_COPIES] = copies.length / 2;
    views.header[Header.SAMPLING] = Number(sampling !== null);
    let at = 0;
    for (let i = 0; i < seqs.length; i++) {
      const { numTokens, contextLen = 0 } = seqs[i];
      const table = blockTables[i];
      const end = at + Math.ceil((contextLen + numTokens) / KV_BLOCK);
      views.tables[i] = at;
      for (let b = 0; at < end; b++) views.blocks[at++] = table[b];
    }
    views.copies.set(copies);
    views.wanted.set(wanted);
    if (sampling !== null) writeSampling(sampling, views);
  }

  /**
   * Copy the result of the finished step.
   *
   * @param {number} deviceNs
   * @returns {StepResult}
   * @throws {import("../errors.js").VoleryError} the module refused or abandoned the step
   */
  read(deviceNs) {
    const { header, output, statuses, sampled } = this.#attached();
    const code = header[Header.STATUS] | 0;
    if (code < 0) {
      throw errorOf(code, header[Header.DETAIL], header[Header.DETAIL + 1], "running a step");
    }
    const samples = header[Header.SAMPLING] === 1;
    const { width } = this.#slot;
    const rows = samples ? 0 : this.#rows(header);
    return {
      output: owned(new Float32Array(rows * width), output),
      rows,
      width,
      statuses: owned(new Uint8Array(header[Header.NUM_SEQS]), statuses),
      sampled: samples ? readSampled(sampled, header[Header.NUM_WANTED]) : null,
      deviceNs,
    };
  }

  /** @param {Uint32Array} header */
  #rows(header) {
    switch (this.#slot.rows) {
      case Rows.SEQS:
        return header[Header.NUM_SEQS];
      case Rows.PICKED:
        return header[Header.NUM_WANTED];
      default:
        return header[Header.NUM_TOKENS];
    }
  }
}

/**
 * @param {ArrayBufferLike} buffer
 * @param {readonly import("../wasm/instance.js").Part[]} parts
 */
function viewsOf(buffer, parts) {
  const u32 = (/** @type {number} */ part) =>
    new Uint32Array(buffer, parts[part].at, parts[part].bytes >>> 2);
  const f32 = (/** @type {number} */ part) =>
    new Float32Array(buffer, parts[part].at, parts[part].bytes >>> 2);
  return {
    header: u32(HEADER),
    tokens: u32(TOKENS),
    seqs: u32(SEQS),
    output: f32(OUTPUT),
    statuses: new Uint8Array(buffer, parts[STATUS].at, parts[STATUS].bytes),
    tables: u32(TABLES),
    blocks: u32(BLOCKS),
    copies: u32(COPIES),
    wanted: u32(WANTED),
    rows: { u32: u32(SAMPLE), f32: f32(SAMPLE) },
    data: { u32: u32(SAMPLE_DATA), f32: f32(SAMPLE_DATA) },
    sampled: { u32: u32(SAMPLED), f32: f32(SAMPLED) },
  };
}

/**
 * Fill `target` from a view of wasm memory: `slice` of a shared view would share its buffer.
 *
 * @template {Float32Array | Int32Array | Uint8Array} T
 * @param {T} target
 * @param {{subarray: (begin: number, end: number) => ArrayLike<number>}} view
 * @param {number} [at]
 * @returns {T}
 */
function owned(target, view, at = 0) {
  if (target.length > 0) target.set(view.subarray(at, at + target.length));
  return target;
}

/** @type {TopLogprobs} */
const NO_TOP = Object.freeze({ tokenIds: new Int32Array(0), logprobs: new Float32Array(0) });

/**
 * @param {{u32: Uint32Array, f32: Float32Array}} records
 * @param {number} count
 * @returns {Sampled}
 */
function readSampled({ u32, f32 }, count) {
  const tokenIds = new Int32Array(count);
  const logprobs = new Float32Array(count);
  const top = new Array(count);
  for (let i = 0; i < count; i++) {
    const at = i * SampledRow.WORDS;
    tokenIds[i] = u32[at + SampledRow.TOKEN];
    logprobs[i] = tokenIds[i] < 0 ? NaN : f32[at + SampledRow.LOGPROB];
    const numTop = tokenIds[i] < 0 ? 0 : u32[at + SampledRow.NUM_TOP];
    top[i] = numTop === 0 ? NO_TOP : readTop(u32, f32, at + SampledRow.TOP, numTop);
  }
  return { tokenIds, logprobs, top };
}

/**
 * @param {Uint32Array} u32
 * @param {Float32Array} f32
 * @param {number} at
 * @param {number} count
 * @returns {TopLogprobs}
 */
function readTop(u32, f32, at, count) {
  const tokenIds = new Int32Array(count);
  const logprobs = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    tokenIds[i] = u32[at + 2 * i];
    logprobs[i] = f32[at + 2 * i + 1];
  }
  return { tokenIds, logprobs };
}
