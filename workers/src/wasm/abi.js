/** The numbers of `wasm/include/volery.h`, and its errors as ours. */
import {
  ArtifactCorrupt,
  ArtifactUnsupported,
  DeviceLost,
  InvalidInput,
  OutOfMemory,
  VoleryError,
} from "../errors.js";

export const ABI_VERSION = 2;

/** `v_error` */
export const Code = Object.freeze({
  OK: 0,
  BAD_PROGRAM: -1,
  UNSUPPORTED: -2,
  NO_MEMORY: -3,
  BAD_CALL: -4,
  INCOMPLETE: -5,
  BAD_STEP: -6,
  ABANDONED: -7,
});

/** `v_step_fault` */
export const StepFault = Object.freeze({
  COUNTS: 1,
  TOKEN: 2,
  ROWS: 3,
  POSITION: 4,
  WANTED: 5,
  BLOCKS: 6,
  COPIES: 7,
  SAMPLE: 8,
});

/** `v_ws_part` */
export const WorkspacePart = Object.freeze({
  HEADER: 0,
  TOKENS: 1,
  SEQS: 2,
  OUTPUT: 3,
  STATUS: 4,
  TABLES: 5,
  BLOCKS: 6,
  COPIES: 7,
  WANTED: 8,
  SAMPLE: 9,
  SAMPLE_DATA: 10,
  SAMPLED: 11,
});

/** u32 words of a workspace's header. */
export const Header = Object.freeze({
  NUM_TOKENS: 0,
  NUM_SEQS: 1,
  STATUS: 2,
  DETAIL: 3,
  NUM_WANTED: 5,
  NUM_COPIES: 6,
  SAMPLING: 7,
  WORDS: 8,
});

/** u32 or f32 words of a `v_sample_row`. */
export const SampleRow = Object.freeze({
  TEMPERATURE: 0,
  TOP_K: 1,
  TOP_P: 2,
  MIN_P: 3,
  REPETITION: 4,
  PRESENCE: 5,
  FREQUENCY: 6,
  TOP_LOGPROBS: 7,
  SEED_LOW: 8,
  SEED_HIGH: 9,
  POSITION: 10,
  PENALIZED_AT: 11,
  PENALIZED_COUNT: 12,
  BIAS_AT: 13,
  BIAS_COUNT: 14,
  MASK_AT: 15,
  WORDS: 16,
});

/** i32 or f32 words of a `v_sampled`; from TOP on, pairs of a token and its logprob. */
export const SampledRow = Object.freeze({ TOKEN: 0, LOGPROB: 1, NUM_TOP: 2, TOP: 4, WORDS: 44 });

/** `V_NO_MASK`: every token is allowed. */
export const NO_MASK = 0xffffffff;

/** `V_MAX_TOP` */
export const MAX_TOP = 20;

/**
 * @typedef {object} Exports
 * @property {() => number} v_abi_version
 * @property {() => number} v_features
 * @property {(which: number) => number} v_detail
 * @property {(bytes: number) => number} v_alloc
 * @property {(program: number, programBytes: number, maxTokens: number, maxSeqs: number,
 *   workspaces: number, threads: number) => number} v_create
 * @property {(tensor: number, row0: number, rows: number, data: number, scale: number,
 *   min: number) => number} v_write_rows
 * @property {(kvBlocks: number, format: number, maxWanted: number, dataWords: number) => number}
 *   v_cache
 * @property {() => number} v_seal
 * @property {(state: number, data: number, blocks: number) => void} v_sha256
 * @property {(which: number) => bigint} v_memory_bytes
 * @property {(ws: number, part: number) => number} v_workspace
 * @property {(part: number) => number} v_part_bytes
 * @property {(ws: number) => number} v_run
 * @property {(thread: number) => number} v_stack_top
 * @property {(thread: number) => number} v_worker
 * @property {(thread: number, ws: number, rank: number, ranks: number) => void} v_post
 * @property {(thread: number) => void} v_stop
 * @property {WebAssembly.Global} [__stack_pointer]
 */

/**
 * The error for a negative code.
 *
 * @param {number} code
 * @param {number} detail0
 * @param {number} detail1
 * @param {string} what what was being done, for messages
 * @returns {VoleryError}
 */
export function errorOf(code, detail0, detail1, what) {
  switch (code) {
    case Code.BAD_PROGRAM:
      return new ArtifactCorrupt(
        `program.bin breaks rule ${detail1}` +
          (detail0 === 0xffffffff ? "" : ` at op ${detail0}`) +
          "; export the model again",
      );
    case Code.UNSUPPORTED:
      return new ArtifactUnsupported(
        `op ${detail0} needs kind or format ${detail1}, which this build lacks; update volery`,
      );
    case Code.NO_MEMORY: {
      const bytesRequested = detail0 + detail1 * 2 ** 32;
      return new OutOfMemory(
        `${what} needs ${bytesRequested} more bytes than WebAssembly memory may grow to; ` +
          "lower maxTokens or kvBlocks, or use a smaller model",
        { bytesRequested },
      );
    }
    case Code.BAD_CALL:
      return new InvalidInput(`${what}: argument ${detail0} is out of range`);
    case Code.INCOMPLETE:
      return new ArtifactCorrupt(
        `rows of tensor ${detail0} are missing from the weights; export the model again`,
      );
    case Code.ABANDONED:
      return new DeviceLost(`${what}: a thread of the step died; load the model again`);
    case Code.BAD_STEP:
      return new InvalidInput(stepFault(detail0, detail1));
    default:
      return new VoleryError(`${what}: unknown code ${code} (${detail0}, ${detail1})`);
  }
}

/**
 * @param {number} fault
 * @param {number} index
 */
function stepFault(fault, index) {
  switch (fault) {
    case StepFault.COUNTS:
      return "the step has no tokens or sequences, or more than the model was loaded for";
    case StepFault.TOKEN:
      return `token ${index} of the step has an id outside the vocabulary`;
    case StepFault.ROWS:
      return `sequence ${index} of the step is empty, pools nothing, or does not start where the one before ends`;
    case StepFault.POSITION:
      return `sequence ${index} of the step is longer than the model's positions`;
    default:
      return `the step breaks rule ${fault} for decoders at index ${index}`;
  }
}
