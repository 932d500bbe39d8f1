/** Counters of a core: what was scheduled, how requests ended, how good predictions were. */

/** @typedef {import("./types.js").Reason} Reason */

/** Lower bounds, in percent, of `PredictionStats.predictionErrors`. */
export const ERROR_BUCKETS = Object.freeze([0, 5, 10, 20, 50, 100]);

/** How good predictions were: of all steps, or of one lane's. */
export class PredictionStats {
  /** Steps that ended well and told their time. */
  measuredSteps = 0;
  /** What those were expected to take, and took. */
  predictedNs = 0;
  measuredNs = 0;
  /**
   * Those steps by how far the prediction was off, in percent of the measured time: the
   * largest of `ERROR_BUCKETS` that is not above it.
   *
   * @type {Map<number, number>}
   */
  predictionErrors = new Map();

  /**
   * A step ended well; times that are not positive tell nothing.
   *
   * @param {number} predictedNs
   * @param {number} measuredNs
   */
  ended(predictedNs, measuredNs) {
    if (measuredNs <= 0) return;
    this.measuredSteps += 1;
    this.predictedNs += predictedNs;
    this.measuredNs += measuredNs;
    const percent = 100 * (Math.abs(measuredNs - predictedNs) / measuredNs);
    let bucket = 0;
    for (const bound of ERROR_BUCKETS) if (percent >= bound) bucket = bound;
    count(this.predictionErrors, bucket);
  }
}

/** Counters since the start; `BatchingCore.stats`. */
export class CoreStats extends PredictionStats {
  /** Requests by how they ended. @type {Map<Reason, number>} */
  finished = new Map();
  /** What was scheduled. */
  steps = 0;
  seqs = 0;
  tokens = 0;
  /** Steps by their number of sequences. @type {Map<number, number>} */
  batchSizes = new Map();
  /** Steps that ended after nobody waited for them any more. */
  lateCompletions = 0;

  /**
   * A step was scheduled.
   *
   * @param {number} numSeqs
   * @param {number} numTokens
   */
  started(numSeqs, numTokens) {
    this.steps += 1;
    this.seqs += numSeqs;
    this.tokens += numTokens;
    count(this.batchSizes, numSeqs);
  }

  /**
   * A request ended.
   *
   * @param {Reason} reason
   */
  finish(reason) {
    count(this.finished, reason);
  }
}

/**
 * @template K
 * @param {Map<K, number>} counts
 * @param {K} key
 */
function count(counts, key) {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
