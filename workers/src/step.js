/** The step: the only way into a backend (docs/design.md, 3.3). */
import { InvalidInput, InvalidType } from "./errors.js";
import { Rows } from "./program/ops.js";
import { errorOf, Header } from "./wasm/abi.js";

/** @typedef {import("./wasm/instance.js").Runtime} Runtime */
/** @typedef {import("./program/format.js").Slot} Slot */

/**
 * One sequence of a step.
 *
 * @typedef {object} SeqRow
 * @property {number} firstToken index of its first token in the step's `tokenIds`
 * @property {number} numTokens tokens it has in this step, at least 1
 * @property {number} [contextLen] its tokens that ran in earlier steps; 0 for an encoder.
 *   Token i has position `contextLen + i`
 * @property {number} [poolSkip] leading tokens that pooling leaves out
 */

/**
 * One execution of the whole program over T packed tokens of S sequences.
 *
 * @typedef {object} Step
 * @property {Int32Array | readonly number[]} tokenIds T ids; sequences lie back to back, in
 *   order, without padding
 * @property {readonly SeqRow[]} seqs S rows
 */

/** What became of a sequence. */
export const SeqStatus = Object.freeze({ OK: 0, NON_FINITE: 1 });

/**
 * @typedef {object} StepResult owned by the caller: a later step does not change it
 * @property {Float32Array} output [rows, width], rows are sequences, or tokens when the
 *   program's output slot holds tokens
 * @property {number} rows
 * @property {number} width
 * @property {Uint8Array} statuses one `SeqStatus` per sequence
 * @property {number} deviceNs time from the step's start to its end in the backend
 */

/**
 * Make a step of whole sequences.
 *
 * @param {readonly (Int32Array | readonly number[])[]} sequences token ids of each
 * @returns {Step}
 */
export function packSequences(sequences) {
  const tokenIds = new Int32Array(sequences.reduce((sum, ids) => sum + ids.length, 0));
  let firstToken = 0;
  const seqs = sequences.map((ids) => {
    tokenIds.set(ids, firstToken);
    const row = { firstToken, numTokens: ids.length };
    firstToken += ids.length;
    return row;
  });
  return { tokenIds, seqs };
}

/**
 * Check what the module cannot see once the values are 32-bit integers.
 *
 * @param {Step} step
 * @param {{maxTokens: number, maxSeqs: number}} limits
 * @returns {{tokenIds: Int32Array, rows: Uint32Array}} rows: 4 words per sequence
 */
export function encodeStep({ tokenIds, seqs }, { maxTokens, maxSeqs }) {
  if (!(tokenIds instanceof Int32Array) && !Array.isArray(tokenIds)) {
    throw new InvalidType(`step.tokenIds is ${typeof tokenIds}, expected an Int32Array or array`);
  }
  if (!Array.isArray(seqs)) {
    throw new InvalidType(`step.seqs is ${typeof seqs}, expected an array`);
  }
  if (tokenIds.length === 0 || tokenIds.length > maxTokens) {
    throw new InvalidInput(`the step has ${tokenIds.length} tokens, expected 1 to ${maxTokens}`);
  }
  if (seqs.length === 0 || seqs.length > maxSeqs) {
    throw new InvalidInput(`the step has ${seqs.length} sequences, expected 1 to ${maxSeqs}`);
  }
  if (!(tokenIds instanceof Int32Array)) {
    const wrong = tokenIds.findIndex((id) => (id | 0) !== id);
    if (wrong >= 0) {
      throw new InvalidInput(
        `token ${wrong} of the step is ${String(tokenIds[wrong])}, expected an integer`,
      );
    }
  }
  const rows = new Uint32Array(4 * seqs.length);
  seqs.forEach((seq, i) => {
    const { firstToken, numTokens, contextLen = 0, poolSkip = 0 } = seq;
    const values = { firstToken, numTokens, contextLen, poolSkip };
    Object.entries(values).forEach(([name, value], j) => {
      if (value >>> 0 !== value) {
        throw new InvalidInput(
          `${name} of sequence ${i} is ${String(value)}, expected a non-negative integer`,
        );
      }
      rows[4 * i + j] = value;
    });
  });
  return { tokenIds: tokenIds instanceof Int32Array ? tokenIds : Int32Array.from(tokenIds), rows };
}

/**
 * Put an encoded step into workspace `ws`.
 *
 * @param {Runtime} runtime
 * @param {number} ws
 * @param {{tokenIds: Int32Array, rows: Uint32Array}} encoded
 */
export function writeStep(runtime, ws, { tokenIds, rows }) {
  const at = runtime.workspaces[ws];
  const header = runtime.u32(at.header, Header.WORDS);
  header[Header.NUM_TOKENS] = tokenIds.length;
  header[Header.NUM_SEQS] = rows.length / 4;
  runtime.i32(at.tokens, tokenIds.length).set(tokenIds);
  runtime.u32(at.seqs, rows.length).set(rows);
}

/**
 * Copy the result of the finished step out of workspace `ws`.
 *
 * @param {Runtime} runtime
 * @param {number} ws
 * @param {Slot} slot the program's output
 * @param {number} deviceNs
 * @returns {StepResult}
 */
export function readResult(runtime, ws, slot, deviceNs) {
  const { code, detail0, detail1 } = runtime.stepStatus(ws);
  if (code < 0) throw errorOf(code, detail0, detail1, "running a step");
  const at = runtime.workspaces[ws];
  const [tokens, seqs] = runtime.u32(at.header, 2);
  const rows = slot.rows === Rows.SEQS ? seqs : tokens;
  // Copies into unshared memory: slice() of a shared view would share its kind of buffer.
  const output = new Float32Array(rows * slot.width);
  output.set(runtime.f32(at.output, output.length));
  const statuses = new Uint8Array(seqs);
  statuses.set(runtime.u8(at.status, seqs));
  return { output, rows, width: slot.width, statuses, deviceNs };
}
