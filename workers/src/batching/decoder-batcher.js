/**
 * Fills one decoder step: a token for every running stream, then prompts from what is left.
 *
 * Continuous batching (Yu et al., "Orca", OSDI 2022) with chunked prefill (Agrawal et al.,
 * "Sarathi-Serve", OSDI 2024): the time between two tokens of a stream is bounded by the
 * TPOT target, so a step's prompt tokens are what the cost model says still fits into it.
 * Several prompts share that budget, shortest first, so none waits for a long one and the
 * long one always gets its share.
 */
import { Entrance } from "./decoder-entry.js";
import { Fill } from "./decoder-fill.js";
import { compareSamples } from "./generation.js";
import { BoundBy, MAX_NS, NS_PER_MS, TrafficClass, stepShape } from "./types.js";

/** @typedef {import("./admission.js").Admission} Admission */
/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./cost-model.js").CostLine} CostLine */
/** @typedef {import("./generation.js").Sample} Sample */
/** @typedef {import("./kv/sequence.js").BlockCopy} BlockCopy */
/** @typedef {import("./queue.js").RequestQueue} RequestQueue */
/** @typedef {import("./residents.js").Residents} Residents */
/** @typedef {import("./types.js").Bound} Bound */
/** @typedef {import("./types.js").StepShape} StepShape */

const BULK_PART = 8; // bulk prompts get this part of a budget that they share with latency ones
const GROWTH = 4; // a step among streams has at most so many times the tokens of the largest yet
const FIRST_TOKENS = 32; // ... or this many
const ALONE_TOKENS = 64; // prompt tokens of a step without streams, however dear they seem

/**
 * The members of a step, in row order, with how many tokens each.
 *
 * @typedef {object} DecoderBatch
 * @property {[Sample, number][]} members
 * @property {BlockCopy[]} copies
 * @property {StepShape} shape
 * @property {Bound} bound
 * @property {boolean} isRetry it holds one sequence of a failed step
 * @property {0 | 1} overdue as in `Why`
 * @property {number} blocked as in `Why`
 * @property {number} binding as in `Why`
 * @property {number} limit as in `Why`
 * @property {number} spareNs what the most urgent member can wait from now on, or `MAX_NS`
 */

/** Builds the next step of one lane; takes what starts out of the queue. */
export class DecoderBatcher {
  /** The largest step that the device has run, and its time. */
  provenTokens = 0;
  provenNs = 0;

  #admission;
  #residents;
  #kv;
  #entrance;
  #targetNs;
  #prefillShare;
  #maxPartial;
  #maxPreemptions;
  #retriedLast = false;

  /**
   * @param {SchedulerConfig} config
   * @param {Admission} admission
   * @param {Residents} residents
   * @param {RequestQueue} queue
   */
  constructor(config, admission, residents, queue) {
    this.#admission = admission;
    this.#residents = residents;
    this.#kv = residents.kv;
    this.#entrance = new Entrance(config, admission, residents, queue);
    this.#targetNs = config.tpotTargetMs * NS_PER_MS;
    this.#prefillShare = config.prefillSharePercent / 100;
    this.#maxPartial = config.maxPartialPrefills;
    this.#maxPreemptions = config.maxPreemptions;
  }

  /**
   * A step of this shape ran; see `#budget`.
   *
   * @param {StepShape} shape
   * @param {number} deviceNs
   */
  learn(shape, deviceNs) {
    if (shape.numTokens >= this.provenTokens && deviceNs > 0) {
      this.provenTokens = shape.numTokens;
      this.provenNs = deviceNs;
    }
  }

  /**
   * Choose the members of the next step; there is work, and no step is in flight.
   *
   * @param {CostLine} line the cost model at this step's thread count
   * @param {number} threads that count
   * @param {number} nowNs the present
   * @returns {DecoderBatch}
   */
  fill(line, threads, nowNs) {
    const fill = new Fill(line, this.#targetNs, nowNs);
    const entrance = this.#entrance;
    entrance.bulkEntered = false;
    entrance.tokenNs = line.token;
    const overdue = entrance.overdue(nowNs);
    let retry = this.#retry(fill);
    if (!retry) {
      if (entrance.makeRoom()) {
        fill.preempted = true;
        fill.stop(BoundBy.MEMORY, entrance.blocked, this.#kv.freeBlocks);
      }
      const { running, streams } = this.#residents;
      /** @type {Sample[]} */
      let prompts = [];
      if (streams.length < running.length) {
        prompts = running.filter((s) => !s.decodes && s.suspect === 0);
      }
      if (streams.length > 0) this.#decode(fill, streams);
      if (prompts.length > 0 || entrance.waiting) {
        const resident = prompts.filter((s) => s.resident);
        this.#prefill(fill, resident, nowNs);
      }
      if (fill.members.length === 0) retry = this.#force(fill);
    }
    const { members, copies, numTokens, pairs, kvTokens } = fill;
    if (retry) {
      fill.stop(BoundBy.RETRY, -1, 1);
      fill.binding = members[0][0].request.requestId;
    } else if (fill.bound !== BoundBy.TPOT) {
      fill.binding = -1;
    }
    const { bound, blocked, binding, limit, spareNs } = fill;
    return {
      members,
      copies,
      shape: stepShape(members.length, numTokens, pairs, kvTokens, threads),
      bound,
      isRetry: retry,
      overdue: overdue && entrance.bulkEntered ? 1 : 0,
      blocked,
      binding,
      limit,
      spareNs,
    };
  }

  // --- failed steps

  /**
   * Run a sequence of a failed step alone; every other step is for the rest.
   *
   * @param {Fill} fill
   */
  #retry(fill) {
    const { running, streams } = this.#residents;
    const onlyStreams = streams.length === running.length;
    const suspect = onlyStreams ? undefined : running.find((s) => s.suspect > 0);
    const others = this.#retriedLast && running.some((s) => s.suspect === 0);
    if (suspect === undefined || (others && !fill.preempted)) {
      this.#retriedLast = false;
      return false;
    }
    this.#retriedLast = true;
    const count = Math.min(suspect.suspect, suspect.left, this.#admission.maxTokens);
    this.#insist(fill, suspect, count, this.#byWorth(suspect));
    return true;
  }

  /**
   * Nobody found memory: the worthiest gets what it needs.
   *
   * @param {Fill} fill
   * @returns {boolean} whether it is a suspect
   */
  #force(fill) {
    const worth = this.#byWorth();
    const sample = worth[0];
    const goal = goalOf(sample);
    const count = Math.min(sample.suspect || goal, goal, this.#kv.blockSize);
    this.#insist(fill, sample, count, worth);
    return sample.suspect > 0;
  }

  // --- streams

  /**
   * A token for every stream.
   *
   * @param {Fill} fill
   * @param {readonly Sample[]} streams
   */
  #decode(fill, streams) {
    const most = this.#admission.maxTokens;
    if (streams.length > most) {
      const waited = [...streams];
      waited.sort((a, b) => a.lastStep - b.lastStep || compareSamples(a, b));
      fill.stop(BoundBy.TOKENS, waited[most].request.requestId, most);
      streams = waited.slice(0, most);
    }
    const kv = this.#kv;
    if (kv.freeBlocks < streams.length) {
      this.#decodeInNeed(fill, streams.length);
      fill.aim();
      return;
    }
    let pairs = 0;
    for (const sample of streams) {
      const seq = sample.kv;
      if (seq.forked || seq.computed === seq.blocks.length * kv.blockSize) {
        // One block each is free
        const copies = /** @type {readonly BlockCopy[]} */ (kv.reserve(sample.seqId, 1));
        fill.copies.push(...copies);
      }
      fill.members.push([sample, 1]);
      pairs += seq.computed + 1;
    }
    fill.numTokens += streams.length;
    fill.pairs += pairs;
    fill.kvTokens += pairs;
    fill.aim();
  }

  /**
   * Memory may run out: the worthiest first, at the cost of the least worthy.
   *
   * @param {Fill} fill
   * @param {number} most
   */
  #decodeInNeed(fill, most) {
    const worth = this.#byWorth();
    for (let i = 0; i < worth.length && fill.members.length < most; i++) {
      const sample = worth[i];
      if (sample.request.forked && sample.left === 1 && sample.suspect === 0) {
        this.#insist(fill, sample, 1, worth);
      }
    }
  }

  /**
   * Residents, the next victim last: lowest class, then least to recompute. Those that were
   * preempted often enough come first whatever their class, and before them the one that
   * must run.
   *
   * @param {Sample | null} [first]
   */
  #byWorth(first = null) {
    const limit = this.#maxPreemptions;
    const rank = (/** @type {Sample} */ s) => (s === first ? 0 : s.preemptions < limit ? 2 : 1);
    return [...this.#residents.running].sort(
      (a, b) =>
        rank(a) - rank(b) ||
        a.request.traffic - b.request.traffic ||
        b.kv.computed - a.kv.computed ||
        compareSamples(a, b),
    );
  }

  /**
   * Place a sample, preempting those of less worth if need be.
   *
   * Who was preempted often enough is spared, unless nothing could run otherwise: the
   * worthiest always runs, so everything ends. Whoever finds no memory and no victim stands
   * still for this step and keeps its blocks.
   *
   * @param {Fill} fill
   * @param {Sample} sample
   * @param {number} count
   * @param {Sample[]} worth
   */
  #insist(fill, sample, count, worth) {
    while (!this.#place(fill, sample, count)) {
      fill.stop(BoundBy.MEMORY, sample.request.requestId, this.#kv.freeBlocks);
      const victim = worth[worth.length - 1];
      const spared = victim.preemptions >= this.#maxPreemptions;
      if (victim === sample || (fill.members.length > 0 && spared)) return;
      worth.pop();
      this.#residents.preempt(victim);
      fill.preempted = true;
    }
  }

  /**
   * @param {Fill} fill
   * @param {Sample} sample
   * @param {number} count
   */
  #place(fill, sample, count) {
    const copies = this.#kv.reserve(sample.seqId, count);
    if (copies === null) return false;
    fill.copies.push(...copies);
    fill.add(sample, count);
    return true;
  }

  // --- prompts

  /**
   * Let newcomers in, and share the rest of the budget among the prompts.
   *
   * @param {Fill} fill
   * @param {Sample[]} prompts
   * @param {number} nowNs
   */
  #prefill(fill, prompts, nowNs) {
    const budget = this.#budget(fill, prompts);
    if (!fill.preempted || (fill.members.length === 0 && prompts.length === 0)) {
      prompts = this.#admit(fill, prompts, budget, nowNs);
    }
    const latency = prompts.filter((s) => s.request.traffic === TrafficClass.LATENCY);
    const bulk = prompts.filter((s) => s.request.traffic !== TrafficClass.LATENCY);
    let kept = 0;
    if (latency.length > 0 && bulk.length > 0 && budget > 1) {
      kept = Math.max(Math.floor(budget / BULK_PART), 1);
    }
    const left = kept + this.#share(fill, latency, budget - kept);
    this.#share(fill, bulk, left);
  }

  /**
   * The prompts with the newcomers: whole ones, and partial ones up to a number.
   *
   * @param {Fill} fill
   * @param {readonly Sample[]} prompts
   * @param {number} budget
   * @param {number} nowNs
   * @returns {Sample[]}
   */
  #admit(fill, prompts, budget, nowNs) {
    const { running } = this.#residents;
    let partial = prompts.length;
    const share = Math.floor(budget / (partial + 1));
    let unclaimed = budget - prompts.reduce((sum, s) => sum + Math.min(s.left, share), 0);
    const all = [...prompts];
    const busy = fill.members.length > 0 && fill.ns > fill.targetNs;
    while (unclaimed > 0) {
      const before = running.length;
      const longest = partial >= this.#maxPartial ? unclaimed : MAX_NS;
      const bound = this.#entrance.admit(longest, busy, nowNs);
      if (bound !== BoundBy.ALL) {
        const limit = bound === BoundBy.TPOT ? fill.targetNs : this.#entrance.limit;
        fill.stop(bound, this.#entrance.blocked, limit);
        break;
      }
      if (running.length === before) break;
      let left = 0;
      for (let i = before; i < running.length; i++) {
        all.push(running[i]);
        left += running[i].left;
      }
      if (left > unclaimed) partial += 1;
      unclaimed -= left;
    }
    this.#entrance.note(nowNs);
    if (fill.bound === BoundBy.ALL && this.#entrance.waiting) {
      fill.stop(BoundBy.TPOT, this.#entrance.firstId(), fill.targetNs);
    }
    return all;
  }

  /**
   * Deal tokens out, shortest prompt first.
   *
   * @param {Fill} fill
   * @param {Sample[]} prompts
   * @param {number} budget
   * @returns {number} what is left
   */
  #share(fill, prompts, budget) {
    prompts.sort((a, b) => a.left - b.left || compareSamples(a, b));
    for (let i = 0; i < prompts.length; i++) {
      if (budget < 1) {
        fill.outOfTime(prompts[i]);
        break;
      }
      const goal = goalOf(prompts[i]);
      const part = Math.max(Math.floor(budget / (prompts.length - i)), 1);
      const count = Math.min(goal, part);
      budget -= this.#prefillOne(fill, prompts[i], count);
      if (count < goal && fill.bound === BoundBy.ALL) fill.outOfTime(prompts[i]);
    }
    return budget;
  }

  /**
   * Place a chunk, as much of it as memory holds.
   *
   * @param {Fill} fill
   * @param {Sample} sample
   * @param {number} count
   * @returns {number} its tokens
   */
  #prefillOne(fill, sample, count) {
    const { request } = sample;
    if (this.#place(fill, sample, count)) {
      if (count === sample.left && request.traffic === TrafficClass.LATENCY) {
        fill.spareNs = Math.min(fill.spareNs, request.dueNs - fill.nowNs);
      }
      return count;
    }
    fill.stop(BoundBy.MEMORY, request.requestId, this.#kv.freeBlocks);
    const { blocks, computed } = sample.kv;
    const room = (blocks.length + this.#kv.freeBlocks) * this.#kv.blockSize - computed;
    if (room > 0 && room < count && this.#place(fill, sample, room)) return room;
    return 0; // it waits: what runs will end and make room
  }

  /**
   * Prompt tokens that the step may still take: at least 1 if it holds one more.
   *
   * Among streams the budget grows with what the device has shown, because a cost model
   * that has not met long chunks yet may be wrong by any factor: a step longer than the
   * longest yet is taken to cost at most in proportion.
   *
   * @param {Fill} fill
   * @param {readonly Sample[]} prompts
   * @returns {number}
   */
  #budget(fill, prompts) {
    const streams = fill.members.length;
    let most = this.#admission.maxTokens - streams;
    if (streams > 0) {
      const growth = Math.min(fill.targetNs / Math.max(this.provenNs, 1), GROWTH);
      const proven = Math.max(Math.trunc(this.provenTokens * Math.max(growth, 1)), FIRST_TOKENS);
      most = Math.min(most, Math.max(proven - streams, 1));
    }
    const context = prompts.reduce((longest, s) => Math.max(longest, s.kv.computed), 0);
    const floorNs = fill.targetNs * this.#prefillShare;
    const leftNs = Math.max(fill.targetNs - fill.ns, floorNs);
    const { line } = fill;
    let low = 1;
    let high = most;
    while (low < high) {
      const m = Math.floor((low + high + 1) / 2);
      const end = context + m;
      if (line.seq + line.token * m + line.pair * (m * end) + line.kv * end <= leftNs) low = m;
      else high = m - 1;
    }
    // Without streams the chunk is long enough to show what tokens cost; see Python's.
    if (streams === 0) low = Math.max(low, ALONE_TOKENS);
    return Math.min(low, most);
  }
}

/**
 * Tokens of a prompt that one sequence computes: each of several samples computes the last.
 *
 * @param {Sample} sample
 */
function goalOf(sample) {
  return sample.request.forked ? sample.left : sample.left - 1;
}
