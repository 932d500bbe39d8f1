/** Carries a decoder's decisions out: block tables, sampling rows, tokens to their owners. */
import { sampleStopped } from "../batching/index.js";
import { GenerateRequest } from "./generate.js";

/** @typedef {import("../batching/events.js").DecoderStepScheduled} DecoderStepScheduled */
/** @typedef {import("../batching/events.js").SampleFinished} SampleFinished */
/** @typedef {import("../batching/events.js").SampleStopped} SampleStopped */
/** @typedef {import("../batching/events.js").TokenEmitted} TokenEmitted */
/** @typedef {import("../step.js").SamplingRow} SamplingRow */
/** @typedef {import("../step.js").SeqRow} SeqRow */
/** @typedef {import("../step.js").Step} Step */
/** @typedef {import("../step.js").StepResult} StepResult */
/** @typedef {import("./request.js").EncodeRequest} EncodeRequest */

/** What the device does for generations. */
export class DecoderDriver {
  #requests;

  /**
   * @param {ReadonlyMap<number, EncodeRequest | GenerateRequest>} requests the device's
   *   requests by id; those that ended are gone
   */
  constructor(requests) {
    this.#requests = requests;
  }

  /**
   * The backend's step, and the requests whose mask hook failed, with its error. Those run
   * along without a mask; the caller ends them.
   *
   * @param {DecoderStepScheduled} scheduled
   * @param {number} nowNs
   * @returns {{step: Step, failed: [GenerateRequest, unknown][]}}
   */
  step(scheduled, nowNs) {
    const { numSeqs, numTokens } = scheduled.shape;
    const tokenIds = new Int32Array(numTokens);
    /** @type {SeqRow[]} */
    const seqs = [];
    /** @type {(readonly number[])[]} */
    const blockTables = [];
    /** @type {number[]} */
    const wanted = [];
    /** @type {SamplingRow[]} */
    const sampling = [];
    /** @type {[GenerateRequest, unknown][]} */
    const failed = [];
    let firstToken = 0;
    for (const slice of scheduled.seqs) {
      const request = /** @type {GenerateRequest} */ (this.#requests.get(slice.requestId));
      const sample = request.samples[slice.sample];
      const { contextLen, numTokens: count, kept, blocks } = slice;
      if (blocks.length > 0 || kept < sample.table.length) {
        // A new array: the last step's may still be read by the backend
        sample.table = [...sample.table.slice(0, kept), ...blocks];
      }
      seqs.push({ firstToken, numTokens: count, contextLen });
      blockTables.push(sample.table);
      const { prompt } = request;
      for (let i = 0; i < count; i++) {
        const at = contextLen + i;
        const id = at < prompt.length ? prompt[at] : sample.tokens[at - prompt.length];
        tokenIds[firstToken + i] = id;
      }
      firstToken += count;
      if (request.queueNs < 0) {
        request.queueNs = nowNs - request.arrivalNs;
        request.cachedTokens = contextLen;
      }
      request.batchSeqs = Math.max(request.batchSeqs, numSeqs);
      request.batchTokens = Math.max(request.batchTokens, numTokens);
      if (slice.wanted) {
        wanted.push(firstToken - 1);
        try {
          sampling.push(request.samplingRow(sample, contextLen + count));
        } catch (error) {
          sampling.push(sample.row);
          failed.push([request, error]);
        }
      }
    }
    const copies = scheduled.copies.flat();
    return { step: { tokenIds, seqs, blockTables, copies, wanted, sampling }, failed };
  }

  /**
   * Which samples end because a stop string is in their text now.
   *
   * @param {DecoderStepScheduled} scheduled
   * @param {StepResult} result
   * @returns {SampleStopped[]}
   */
  stops(scheduled, result) {
    /** @type {SampleStopped[]} */
    const events = [];
    const ids = result.sampled?.tokenIds ?? [];
    let row = 0;
    for (const { requestId, sample, wanted } of scheduled.seqs) {
      if (!wanted) continue;
      const request = this.#requests.get(requestId);
      if (request instanceof GenerateRequest && request.options.stop.length > 0) {
        if (request.lookForStop(request.samples[sample], ids[row])) {
          events.push(sampleStopped(requestId, sample));
        }
      }
      row += 1;
    }
    return events;
  }

  /**
   * Hand a token to its owner.
   *
   * @param {TokenEmitted} emitted
   * @param {StepResult} result
   * @param {number} nowNs
   */
  emit({ requestId, sample, tokenId, row }, { sampled }, nowNs) {
    const request = this.#requests.get(requestId);
    if (!(request instanceof GenerateRequest) || !sampled) return;
    const token = { tokenId, logprob: sampled.logprobs[row], top: sampled.top[row] };
    request.emit(request.samples[sample], token, nowNs);
  }

  /**
   * A sample has said all.
   *
   * @param {SampleFinished} finished
   */
  finish({ requestId, sample, reason }) {
    const request = this.#requests.get(requestId);
    if (!(request instanceof GenerateRequest)) return;
    request.samples[sample].finishReason = reason === "length" ? "length" : "stop";
    request.wake();
  }
}
