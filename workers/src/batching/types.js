/**
 * The plain data that the batching core is made of.
 *
 * This folder mirrors `runtime_py/batching/`, file by file and noun by noun, and makes the
 * same decisions: golden traces are replayed by both and their digests compared. So
 * integers stay below 2**53, a ratio is an IEEE double built with `+ - * /` only, in the
 * order in which Python has it, and every tie breaks by (due time, arrival, sequence number).
 */

/** Later than any time this package computes; exact in a double. */
export const MAX_NS = 2 ** 52;

export const NS_PER_MS = 1_000_000;

/**
 * What a request wants from the scheduler. LATENCY: somebody waits for it, earliest due
 * time first. THROUGHPUT: bulk work, which fills what is left, first come first served, and
 * never starves.
 */
export const TrafficClass = Object.freeze({ LATENCY: 0, THROUGHPUT: 1 });

/**
 * What a lane's requests become. ENCODER: each sequence runs once, whole, and gives a
 * vector. DECODER: each is prefilled in chunks and then gives a token per step.
 */
export const LaneKind = Object.freeze({ ENCODER: "encoder", DECODER: "decoder" });

/**
 * How a step ended, as the driver reports it. FAILED: the backend threw; which of the
 * step's sequences is to blame is unknown. LOST: it died; nothing will run on it again.
 */
export const StepOutcome = Object.freeze({
  OK: "ok",
  FAILED: "failed",
  OUT_OF_MEMORY: "out_of_memory",
  LOST: "lost",
});

/**
 * Why a request ended. Everything but DONE becomes a typed error. A sample of a generation
 * ends by STOP (a stop token, or the driver saw the end of the text) or LENGTH (it has as
 * many tokens as were asked for, or as the model has positions), its request then by DONE.
 */
export const FinishReason = Object.freeze({
  DONE: "done",
  STOP: "stop",
  LENGTH: "length",
  NEVER_FITS: "never_fits",
  OVERLOADED: "overloaded",
  DEADLINE: "deadline",
  TIMEOUT: "timeout",
  ABORTED: "aborted",
  NON_FINITE: "non_finite",
  FAILED: "failed",
  OUT_OF_MEMORY: "out_of_memory",
  DEVICE_LOST: "device_lost",
});

/**
 * What kept a batch from growing further: the first thing to ask about a step.
 *
 * ALL: everything that waited is in it. TIME: its predicted time reached its target. TPOT:
 * more prompt tokens would have kept a running stream waiting for its next token. DEADLINE: one more sequence would have cost a member its deadline. MEMORY: the key-value
 * cache is full: a sequence stood still, went, or was not let in. RETRY: a sequence of a
 * failed step, alone, so that only the culprit can fail again.
 */
export const BoundBy = Object.freeze({
  ALL: "all",
  SEQS: "seqs",
  TOKENS: "tokens",
  TIME: "time",
  TPOT: "tpot",
  DEADLINE: "deadline",
  MEMORY: "memory",
  RETRY: "retry",
});

/**
 * Why a lane got the device.
 *
 * ONLY: no other lane had anything to start. URGENT: of the lanes with urgent work, it has to
 * start first. LATE: several lanes are late already; it has had the least time for its weight.
 * SHARE: of the lanes with bulk work, it has had the least time for its weight. SLACK: an
 * urgent lane can wait for this bulk step, and its own step will be larger for it.
 */
export const Turn = Object.freeze({
  ONLY: "only",
  URGENT: "urgent",
  LATE: "late",
  SHARE: "share",
  SLACK: "slack",
});

/** @typedef {(typeof TrafficClass)[keyof typeof TrafficClass]} Traffic */
/** @typedef {(typeof LaneKind)[keyof typeof LaneKind]} Kind */
/** @typedef {(typeof StepOutcome)[keyof typeof StepOutcome]} Outcome */
/** @typedef {(typeof FinishReason)[keyof typeof FinishReason]} Reason */
/** @typedef {(typeof BoundBy)[keyof typeof BoundBy]} Bound */
/** @typedef {(typeof Turn)[keyof typeof Turn]} TurnName */

/**
 * What made a step what it is.
 *
 * @typedef {object} Why
 * @property {TurnName} turn why its lane was chosen
 * @property {0 | 1} overdue 1 if bulk work went first because it had waited long enough
 * @property {number} blocked the request that would have been next, or -1 if nothing was left
 *   out
 * @property {number} binding the request whose deadline, due time or TPOT target set the limit
 *   (a member, or the blocked one itself), or -1
 * @property {number} limit the limit that `bound` names: tokens, sequences, nanoseconds, or
 *   free blocks; 0 if there was none
 * @property {number} slackNs what the most urgent member has to spare if the prediction is
 *   right; negative when it will be late, `MAX_NS` when nobody is waiting for the step
 * @property {number} waiting sequences of the lane that are still queued
 * @property {number} expected sequences that are expected to arrive while the step runs
 */

/**
 * What a step's time depends on.
 *
 * @typedef {object} StepShape
 * @property {number} numSeqs sequences
 * @property {number} numTokens tokens of this step, over all sequences
 * @property {number} sumLenSq the query-key pairs of attention: of an encoder the sum of
 *   squared lengths, of a decoder the sum of tokens times context
 * @property {number} kvTokens tokens whose keys and values are read from the cache; 0 for
 *   an encoder
 * @property {number} threads threads that run the step
 */

/**
 * @param {number} numSeqs
 * @param {number} numTokens
 * @param {number} sumLenSq
 * @param {number} kvTokens
 * @param {number} threads
 * @returns {StepShape}
 */
export function stepShape(numSeqs, numTokens, sumLenSq, kvTokens, threads) {
  return { numSeqs, numTokens, sumLenSq, kvTokens, threads };
}

/**
 * One sequence of a step: item `item` of a request, `numTokens` long.
 *
 * @typedef {object} SeqSlice
 * @property {number} requestId
 * @property {number} item
 * @property {number} numTokens
 */

/**
 * One sequence of a decoder's step. The driver keeps every sequence's block table; a slice
 * tells how it changed.
 *
 * @typedef {object} DecoderSlice
 * @property {number} requestId whose
 * @property {number} sample whose
 * @property {number} contextLen its tokens that ran in earlier steps
 * @property {number} numTokens those of this step, from position `contextLen` on
 * @property {0 | 1} wanted 1 if a token is to be sampled after the last of them
 * @property {number} kept leading entries of its block table that stay
 * @property {readonly number[]} blocks the entries that follow them
 */

/**
 * Nanoseconds per unit of `StepShape`, on one thread: what the cost model starts from.
 *
 * @typedef {object} CostProfile
 * @property {number} stepNs per step
 * @property {number} threadNs per thread beyond the first (starting it and meeting it at
 *   barriers)
 * @property {number} seqNs per sequence
 * @property {number} tokenNs per token
 * @property {number} pairNs per query-key pair (`sumLenSq`)
 * @property {number} kvNs per token read from the key-value cache
 */

/** @type {CostProfile} */
export const DEFAULT_PROFILE = Object.freeze({
  stepNs: 100_000,
  threadNs: 40_000,
  seqNs: 5_000,
  tokenNs: 200_000,
  pairNs: 100,
  kvNs: 50,
});

/**
 * What all lanes share.
 *
 * @typedef {object} DeviceSpec
 * @property {number} threads threads of the pool; steps in flight never use more together
 * @property {number} concurrentSteps most steps in flight
 * @property {number} [stepThreads] most threads of one step; 0, the default, = all. Less than
 *   all where the threads share no memory, so that each can only run steps of its own
 */

/** @type {DeviceSpec} */
export const DEFAULT_DEVICE = Object.freeze({ threads: 1, concurrentSteps: 1 });

/**
 * Threads that a step can have when `free` are.
 *
 * @param {DeviceSpec} device
 * @param {number} free
 */
export function mostThreads({ stepThreads = 0 }, free) {
  return stepThreads > 0 ? Math.min(free, stepThreads) : free;
}

/**
 * One model's queue of one kind of work.
 *
 * @typedef {object} LaneSpec
 * @property {string} name key of the lane, unique in its core, such as `"minilm/embed"`
 * @property {number} maxTokens most tokens in a step; an encoder's longer sequence never fits
 * @property {number} maxSeqs most sequences in a step; of a decoder also the most that are
 *   under way, and the most rows that may be sampled in a step
 * @property {number} weight share of device time against other lanes: while all are late, and
 *   of bulk work always
 * @property {CostProfile} profile where the cost model starts
 * @property {Kind} kind encoder or decoder
 * @property {number} kvBlocks decoder: blocks of its key-value cache
 * @property {number} blockSize decoder: tokens of a block
 * @property {number} maxContext decoder: most tokens of a sequence, generated ones included;
 *   0 = what the cache holds
 * @property {Readonly<import("./config.js").SchedulerConfig> | null} config its own knobs;
 *   null = those of the core
 */

/**
 * A lane with defaults for what is not given.
 *
 * @param {{name: string, maxTokens: number, maxSeqs: number} & Partial<LaneSpec>} spec
 * @returns {LaneSpec}
 */
export function laneSpec({
  name,
  maxTokens,
  maxSeqs,
  weight = 1,
  profile = DEFAULT_PROFILE,
  kind = LaneKind.ENCODER,
  kvBlocks = 0,
  blockSize = 32,
  maxContext = 0,
  config = null,
}) {
  const cache = { kvBlocks, blockSize, maxContext };
  return { name, maxTokens, maxSeqs, weight, profile, kind, ...cache, config };
}
