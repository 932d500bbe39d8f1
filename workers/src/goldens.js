/** `goldens.json`: inputs and outputs by which a backend checks itself at load. */
import { isRecord, parseJson } from "./artifact/manifest.js";
import { ArtifactCorrupt, InvalidInput } from "./errors.js";
import { KV_BLOCK } from "./program/ops.js";
import { packSequences, SeqStatus } from "./step.js";

/** @typedef {import("./step.js").Step} Step */
/** @typedef {import("./step.js").StepLimits} StepLimits */
/** @typedef {import("./step.js").StepResult} StepResult */

/**
 * @typedef {object} GoldenCase
 * @property {string} text
 * @property {number[]} tokenIds
 * @property {number[]} embedding of a decoder, the logits after the last token
 */

/**
 * @typedef {object} Goldens
 * @property {number} minCosine
 * @property {GoldenCase[]} cases
 */

/**
 * @typedef {object} GoldenReport
 * @property {number} cases
 * @property {number} worstCosine
 */

/**
 * @param {Uint8Array} bytes
 * @param {number} width of the program's output
 * @returns {Goldens}
 */
export function parseGoldens(bytes, width) {
  const raw = parseJson(bytes, "goldens.json");
  const bad = (/** @type {string} */ what) =>
    new ArtifactCorrupt(`goldens.json ${what}; export the model again`);
  const minCosine = raw?.tolerance?.cosine;
  if (typeof minCosine !== "number" || !(minCosine > 0 && minCosine <= 1)) {
    throw bad("has no tolerance.cosine between 0 and 1");
  }
  if (!Array.isArray(raw.cases) || raw.cases.length === 0) throw bad("has no cases");
  const cases = raw.cases.map((/** @type {unknown} */ value, /** @type {number} */ i) => {
    if (!isRecord(value)) throw bad(`case ${i} is not an object`);
    const { text, token_ids: tokenIds, embedding } = value;
    if (typeof text !== "string") throw bad(`case ${i} has no text`);
    if (!Array.isArray(tokenIds) || tokenIds.length === 0) throw bad(`case ${i} has no token_ids`);
    if (!Array.isArray(embedding) || embedding.length !== width) {
      throw bad(`case ${i} has no embedding of ${width} numbers`);
    }
    return { text, tokenIds, embedding };
  });
  return { minCosine, cases };
}

/**
 * Run every case and compare.
 *
 * @param {Goldens} goldens
 * @param {StepLimits} limits
 * @param {(step: Step) => Promise<StepResult>} run
 * @returns {Promise<GoldenReport>}
 * @throws {ArtifactCorrupt} a case misses the tolerance: this host and artifact must not be
 *   trusted together
 * @throws {InvalidInput} the limits are too small for a case
 */
export async function checkGoldens({ minCosine, cases }, limits, run) {
  checkRoom(cases, limits);
  let worstCosine = 1;
  for (const batch of batches(cases, limits)) {
    let result;
    try {
      result = await run(stepOf(batch, limits));
    } catch (cause) {
      if (!(cause instanceof InvalidInput)) throw cause;
      throw new ArtifactCorrupt(`goldens.json cannot be run: ${cause.message}`, { cause });
    }
    const { output, width, statuses } = result;
    batch.forEach(({ text, embedding }, i) => {
      const got = output.subarray(i * width, (i + 1) * width);
      const similarity = statuses[i] === SeqStatus.OK ? cosine(got, embedding) : NaN;
      if (!(similarity >= minCosine)) {
        throw new ArtifactCorrupt(
          `the golden text ${JSON.stringify(text.slice(0, 40))} has cosine ` +
            `${similarity.toFixed(6)} to its expected output, at least ${minCosine} is ` +
            "required; this host computes the model wrongly: try wasm: {variant: 'simd'} and report it",
        );
      }
      worstCosine = Math.min(worstCosine, similarity);
    });
  }
  return { cases: cases.length, worstCosine };
}

/** @param {GoldenCase} c */
const blocksOf = ({ tokenIds }) => Math.ceil(tokenIds.length / KV_BLOCK);

/**
 * @param {GoldenCase[]} cases
 * @param {StepLimits} limits
 */
function checkRoom(cases, { maxTokens, kvBlocks }) {
  const longest = Math.max(...cases.map((c) => c.tokenIds.length));
  const needs = (
    /** @type {string} */ name,
    /** @type {number} */ is,
    /** @type {number} */ least,
  ) => new InvalidInput(`${name} is ${is}, expected at least ${least}: a golden prompt needs that`);
  if (longest > maxTokens) throw needs("maxTokens", maxTokens, longest);
  const blocks = Math.ceil(longest / KV_BLOCK);
  if (kvBlocks > 0 && blocks > kvBlocks) throw needs("kvBlocks", kvBlocks, blocks);
}

/**
 * As few steps as the limits allow; usually one.
 *
 * @param {GoldenCase[]} cases
 * @param {StepLimits} limits
 * @returns {GoldenCase[][]}
 */
function batches(cases, { maxTokens, maxSeqs, kvBlocks, maxWanted }) {
  const maxCases = kvBlocks > 0 ? Math.min(maxSeqs, maxWanted) : maxSeqs;
  const maxBlocks = kvBlocks || Infinity;
  /** @type {GoldenCase[][]} */
  const all = [];
  let tokens = Infinity;
  let blocks = 0;
  for (const c of cases) {
    const last = all.at(-1);
    tokens += c.tokenIds.length;
    blocks += blocksOf(c);
    if (last && tokens <= maxTokens && last.length < maxCases && blocks <= maxBlocks) {
      last.push(c);
    } else {
      all.push([c]);
      tokens = c.tokenIds.length;
      blocks = blocksOf(c);
    }
  }
  return all;
}

/**
 * @param {GoldenCase[]} batch
 * @param {StepLimits} limits
 * @returns {Step}
 */
function stepOf(batch, { kvBlocks }) {
  const step = packSequences(batch.map((c) => c.tokenIds));
  if (kvBlocks === 0) return step;
  let next = 0;
  const blockTables = batch.map((c) => Int32Array.from({ length: blocksOf(c) }, () => next++));
  const wanted = step.seqs.map((seq) => seq.firstToken + seq.numTokens - 1);
  return { ...step, blockTables, wanted };
}

/**
 * @param {ArrayLike<number>} a
 * @param {ArrayLike<number>} b
 */
function cosine(a, b) {
  let ab = 0;
  let aa = 0;
  let bb = 0;
  for (let i = 0; i < a.length; i++) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / Math.sqrt(aa * bb);
}
