/** From the backend's rows to what the caller asked for. */

/** @typedef {import("./options.js").VectorFormat} VectorFormat */

/** A vector; `Float16Array` where the host has it and the caller asked for it. */
/** @typedef {Float32Array} Vector */

/**
 * Vectors with the facts about how they were made.
 *
 * @typedef {object} EmbedResult
 * @property {Vector | Vector[]} vectors what `embed` returns: one for a string, else an array
 * @property {number[]} tokenCounts tokens of each text that were embedded, special tokens
 *   included
 * @property {boolean[]} truncated whether each text was longer than the model's limit
 * @property {number} queueMs from the first submission to the start of its first step
 * @property {number} deviceMs time of the steps that carried the texts, inside the backend
 * @property {number} steps how many those were
 * @property {number} batchSeqs the size of the largest of them, other requests included
 * @property {number} batchTokens
 * @property {number} cachedTokens tokens that were not computed again; 0 for encoders
 */

const EPSILON = 1e-12;

/**
 * The vectors of `output`, f32 [n, width]; a row's does not depend on the other rows.
 *
 * @param {Float32Array} output
 * @param {VectorFormat} format
 * @returns {Vector[]}
 */
export function vectorsOf(output, { width, dimensions, normalize, dtype }) {
  /** @type {Vector[]} */
  const rows = [];
  for (let start = 0; start < output.length; start += width) {
    // Each with a buffer of its own: keeping one vector must not keep them all
    const row = output.slice(start, start + dimensions);
    if (normalize) scaleToOne(row);
    rows.push(dtype === "float16" ? halves(row) : row);
  }
  return rows;
}

/** @param {Float32Array} row */
function scaleToOne(row) {
  let squares = 0;
  for (const x of row) squares += x * x;
  const norm = Math.max(Math.sqrt(squares), EPSILON);
  for (let i = 0; i < row.length; i++) row[i] /= norm;
}

/**
 * @param {Float32Array} row
 * @returns {Vector}
 */
function halves(row) {
  const { Float16Array } = /** @type {any} */ (globalThis);
  return Float16Array.from(row);
}
