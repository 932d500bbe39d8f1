/** Sampling rows as the module reads them: `v_sample_row` and the lists they point to. */
import { NO_MASK, SampleRow } from "../wasm/abi.js";

/** @typedef {import("../step.js").SamplingRow} SamplingRow */
/** @typedef {{u32: Uint32Array, f32: Float32Array}} Words the same memory as both */

/** @type {readonly number[]} */
const NONE = Object.freeze([]);

/**
 * @param {readonly SamplingRow[]} sampling checked
 * @param {{rows: Words, data: Words}} to
 */
export function writeSampling(sampling, { rows, data }) {
  let end = 0;
  for (let i = 0; i < sampling.length; i++) {
    end = writeRow(sampling[i], rows, i * SampleRow.WORDS, data, end);
  }
}

/**
 * @param {SamplingRow} row
 * @param {Words} rows
 * @param {number} at
 * @param {Words} data
 * @param {number} end words of the data that are taken
 * @returns {number} those taken now
 */
function writeRow(row, { u32, f32 }, at, data, end) {
  const { penalized = NONE, bias = NONE, mask = null, seed = 0 } = row;
  f32[at + SampleRow.TEMPERATURE] = row.temperature ?? 0;
  u32[at + SampleRow.TOP_K] = row.topK ?? 0;
  f32[at + SampleRow.TOP_P] = row.topP ?? 1;
  f32[at + SampleRow.MIN_P] = row.minP ?? 0;
  f32[at + SampleRow.REPETITION] = row.repetitionPenalty ?? 1;
  f32[at + SampleRow.PRESENCE] = row.presencePenalty ?? 0;
  f32[at + SampleRow.FREQUENCY] = row.frequencyPenalty ?? 0;
  u32[at + SampleRow.TOP_LOGPROBS] = row.topLogprobs ?? 0;
  if (typeof seed === "bigint") {
    u32[at + SampleRow.SEED_LOW] = Number(seed & 0xffffffffn);
    u32[at + SampleRow.SEED_HIGH] = Number(seed >> 32n);
  } else {
    u32[at + SampleRow.SEED_LOW] = seed >>> 0;
    u32[at + SampleRow.SEED_HIGH] = Math.floor(seed / 2 ** 32);
  }
  u32[at + SampleRow.POSITION] = row.position ?? 0;

  u32[at + SampleRow.PENALIZED_AT] = end;
  u32[at + SampleRow.PENALIZED_COUNT] = penalized.length / 3;
  data.u32.set(penalized, end);
  end += penalized.length;
  u32[at + SampleRow.BIAS_AT] = end;
  u32[at + SampleRow.BIAS_COUNT] = bias.length / 2;
  for (let i = 0; i < bias.length; i += 2) {
    data.u32[end + i] = bias[i];
    data.f32[end + i + 1] = bias[i + 1];
  }
  end += bias.length;
  u32[at + SampleRow.MASK_AT] = mask === null ? NO_MASK : end;
  if (mask !== null) {
    data.u32.set(mask, end);
    end += mask.length;
  }
  return end;
}
