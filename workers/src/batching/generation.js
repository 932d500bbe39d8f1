/** A generation inside the core: one prompt, and the samples that continue it. */
import { Request } from "./request.js";

/** @typedef {import("./events.js").GenerationArrived} GenerationArrived */
/** @typedef {import("./kv/sequence.js").KVSequence} KVSequence */

/** One sequence of a generation, from admission (or its fork) to its end. */
export class Sample {
  /** It is among those that run, not preempted. */
  resident = true;
  /** How often its blocks were taken away. */
  preemptions = 0;
  /** Its tokens in a step that failed; it runs them alone next. 0 = none. */
  suspect = 0;
  /** Number of the last step it was in. */
  lastStep = -1;
  /** It has not ended. */
  alive = true;

  /**
   * @param {Generation} request
   * @param {number} index which sample of its request
   * @param {number} seqId its number in the `KVManager`
   * @param {KVSequence} kv what the manager knows of it
   */
  constructor(request, index, seqId, kv) {
    this.request = request;
    this.index = index;
    this.seqId = seqId;
    this.kv = kv;
    /** Tokens of its sequence, the prompt's included, at which it has all it may get. */
    this.end = request.prompt.length + request.maxTokens;
  }

  /** Known tokens that are to be computed: 1 when it decodes. */
  get left() {
    return this.kv.tokens.length - this.kv.computed;
  }

  /** Its next token gives one: the prompt is computed, and its twins are born. */
  get decodes() {
    return this.left === 1 && this.request.forked;
  }

  /** Tokens that it may still get. */
  get remaining() {
    return this.end - this.kv.tokens.length;
  }

  /** Sequences that it stands for: until the prompt is computed also its twins. */
  get seats() {
    return this.request.forked ? 1 : this.request.numTokens.length;
  }
}

/**
 * Order of samples of the same kind of work.
 *
 * @param {Sample} a
 * @param {Sample} b
 */
export function compareSamples(a, b) {
  return (
    a.request.traffic - b.request.traffic || a.request.seq - b.request.seq || a.index - b.index
  );
}

/**
 * A `GenerationArrived`. Its items are its samples: the prompt, and one token each for the
 * others, which is what they cost to start.
 */
export class Generation extends Request {
  /** Those that are under way or ended, by index. @type {Sample[]} */
  samples = [];

  /**
   * @param {GenerationArrived} event
   * @param {number} nowNs
   * @param {number} seq
   * @param {number} maxTokens of each sample, limited to what the lane can hold
   * @param {number} tpotTargetNs longest time between two of its tokens while others join
   */
  constructor(event, nowNs, seq, maxTokens, tpotTargetNs) {
    const lengths = new Array(event.samples).fill(1);
    lengths[0] = event.tokens.length;
    const { requestId, traffic, deadlineNs, tenant } = event;
    super(requestId, lengths, traffic, nowNs, deadlineNs, seq, tenant);
    this.prompt = event.tokens;
    this.maxTokens = maxTokens;
    this.tpotTargetNs = tpotTargetNs;
    this.stopIds = event.stopIds;
    this.salt = event.salt;
    /** Samples that have not ended, the unborn included. */
    this.numOpen = event.samples;
    /** All samples exist. */
    this.forked = event.samples === 1;
  }
}
