// What a decoder's step costs outside the backend: checking it, writing it into a workspace
// and reading the tokens. Prints microseconds as JSON, medians of many.
//   node encode.mjs
import { StepChecker } from "../../workers/src/step/check.js";
import { Workspace } from "../../workers/src/step/workspace.js";
import { Header, SampledRow, SampleRow } from "../../workers/src/wasm/abi.js";

const SEQS = 32;
const CONTEXT = 1000;
const BLOCKS = 32; // of a sequence
const VOCABULARY = 49152;
const KV_BLOCKS = SEQS * BLOCKS;
const DATA_WORDS = 1 << 18;
const LISTED = [0, 500]; // penalized tokens of a sequence

/** A workspace in plain memory, its parts one after another, in words as volery.h has them. */
function workspace() {
  const words = [Header.WORDS, SEQS, 4 * SEQS, 0, SEQS, SEQS, KV_BLOCKS, 2 * KV_BLOCKS, SEQS];
  words.push(SEQS * SampleRow.WORDS, DATA_WORDS, SEQS * SampledRow.WORDS);
  let at = 0;
  const parts = words.map((count) => {
    const part = { at, bytes: 4 * count };
    at += part.bytes;
    return part;
  });
  const runtime = { memory: { buffer: new ArrayBuffer(at) }, workspaces: [parts] };
  return new Workspace(runtime, 0, { output: { rows: 2, width: VOCABULARY }, isDecoder: true });
}

function stepOf(listed) {
  const rows = Array.from({ length: SEQS }, (_, i) => i);
  const penalized = Int32Array.from({ length: 3 * listed }, (_, j) => (j % 3 ? 1 : (j / 3) * 7));
  return {
    tokenIds: Int32Array.from(rows),
    seqs: rows.map((i) => ({ firstToken: i, numTokens: 1, contextLen: CONTEXT })),
    blockTables: rows.map((i) => Int32Array.from({ length: BLOCKS }, (_, b) => i * BLOCKS + b)),
    wanted: rows,
    sampling: rows.map((i) => ({ temperature: 0.7, topP: 0.9, seed: 7n, position: i, penalized })),
  };
}

const limits = { maxTokens: SEQS, maxSeqs: SEQS, kvBlocks: KV_BLOCKS, maxWanted: SEQS };
const checker = new StepChecker({ vocabSize: VOCABULARY, maxPositions: 8192 }, limits);
const target = workspace();

function median(step) {
  const times = [];
  for (let i = 0; i < 3000; i++) {
    const before = performance.now();
    checker.check(step);
    target.write(step);
    target.read(0);
    times.push(performance.now() - before);
  }
  return 1000 * times.sort((a, b) => a - b)[times.length >> 1];
}

const result = { seqs: SEQS, us: LISTED.map((listed) => [listed, median(stepOf(listed))]) };
console.log(JSON.stringify(result));
