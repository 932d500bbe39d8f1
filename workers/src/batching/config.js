/** Every knob of the scheduler, with a default that needs no tuning. */
import { InvalidInput } from "../errors.js";

const MAX_KNOB = 10 ** 9;

/**
 * What happens to a request that waited longer than its class allows. REJECT: it ends with
 * a typed error. DEMOTE: it moves to the throughput class and keeps its arrival time.
 */
export const TimeoutAction = Object.freeze({ REJECT: "reject", DEMOTE: "demote" });

/**
 * Limits of one traffic class's queue.
 *
 * @typedef {object} QueuePolicy
 * @property {number} maxQueueSize most sequences that may wait. A list of 30 texts counts
 *   30, exactly like 30 single texts. Beyond it a request is `Overloaded`
 * @property {number} timeoutMs longest wait for the first step; 0 = unlimited. This is not
 *   a deadline: it says nothing about when the result arrives
 * @property {(typeof TimeoutAction)[keyof typeof TimeoutAction]} timeoutAction what then
 *   happens
 * @property {number} maxQueueMs most work, in predicted time, that may wait; 0 = unlimited.
 *   Beyond it a request is `Overloaded`, so that a crowd leaves no long queue behind
 */

/** @type {QueuePolicy} */
const DEFAULT_POLICY = {
  maxQueueSize: 16_384,
  timeoutMs: 0,
  timeoutAction: TimeoutAction.REJECT,
  maxQueueMs: 0,
};

const POLICY_LOWEST = { maxQueueSize: 1, timeoutMs: 0, maxQueueMs: 0 };

/** The knobs that are whole numbers: [default, lowest]. */
const KNOBS = /** @type {const} */ ({
  latencyTargetMs: [50, 0],
  ttftTargetMs: [200, 0],
  stepTargetMs: [50, 1],
  stepOverheadPercent: [2, 0],
  maxBatchTokens: [0, 0],
  maxBatchSeqs: [0, 0],
  fillPercent: [25, 0],
  deadlineMarginPercent: [200, 0],
  tenantLeadMs: [100, 0],
  throughputMaxWaitMs: [500, 0],
  throughputMaxSkips: [16, 0],
  throughputSharePercent: [50, 1],
  warmupSteps: [1, 0],
  costMemorySteps: [32, 2],
  arrivalWindowMs: [1000, 1],
  memoryRecoverySteps: [32, 1],
  tpotTargetMs: [100, 1],
  prefillSharePercent: [25, 1],
  maxPartialPrefills: [2, 2],
  maxPreemptions: [3, 0],
});

const PERCENT = ["throughputSharePercent", "prefillSharePercent", "stepOverheadPercent"];

const FLAGS = { prefixCaching: true, energySaving: false };

/**
 * How the batching core behaves. Times are whole milliseconds.
 *
 * @typedef {object} SchedulerConfig
 * @property {number} latencyTargetMs a latency request without a deadline is due this long
 *   after its arrival plus the time it needs alone, unless it names a target of its own.
 *   Orders requests and shapes steps; sheds nothing
 * @property {number} ttftTargetMs the same for the first token of a generation
 * @property {number} stepTargetMs how long one step may take by prediction (one sequence
 *   always runs, however long). The time for which a newcomer may find the device busy
 * @property {number} stepOverheadPercent while latency requests wait or are expected, a step
 *   takes no longer than a quarter of the latency target, or as long as makes its fixed cost
 *   this part of it, whichever is more; 0 = always up to `stepTargetMs`
 * @property {number} maxBatchTokens most tokens in a step; 0 = whatever the backend holds
 * @property {number} maxBatchSeqs most sequences in a step; 0 = whatever the backend holds
 * @property {number} fillPercent by how much bulk sequences may lengthen a step that carries
 *   latency sequences
 * @property {number} deadlineMarginPercent the time kept free before a deadline, in percent
 *   of the cost model's measured error: who runs on the brink is late half the time
 * @property {number} tenantLeadMs within a class, device time by which a tenant may be ahead
 *   of the least served one that waits, before it has to let others go first
 * @property {boolean} energySaving start a step only when it is full, when a request's slack
 *   ends, or when nobody else is expected before that. Fewer and larger steps for the same
 *   work; every request waits for most of its target
 * @property {QueuePolicy} latency queue limits of the latency class
 * @property {QueuePolicy} throughput queue limits of the throughput class
 * @property {number} throughputMaxWaitMs while bulk work waits, some of it runs at least
 *   this often, whatever the latency class asks for
 * @property {number} throughputMaxSkips the same bound counted in steps
 * @property {number} throughputSharePercent the part of a step's time such a turn may take
 * @property {number} warmupSteps first steps per thread count that the cost model ignores:
 *   they pay for compilation and cold caches
 * @property {number} costMemorySteps steps after which an old sample weighs about a third
 * @property {number} arrivalWindowMs window of the arrival-rate estimate
 * @property {number} memoryRecoverySteps steps without an allocation failure after which a
 *   token budget that memory pressure halved doubles again
 * @property {number} tpotTargetMs decoders: how long a step may take by prediction, and so
 *   the time between two tokens of a stream while others join. The tightest target among
 *   the running streams counts
 * @property {number} prefillSharePercent decoders: the part of that time which prompts get
 *   even if the running streams alone take all of it
 * @property {number} maxPartialPrefills decoders: most prompts that are prefilled in chunks
 *   side by side, so that a short one never waits for a long one
 * @property {number} maxPreemptions decoders: how often a sequence loses its blocks to
 *   others, as long as anything else can run
 * @property {boolean} prefixCaching decoders: whether prompts that begin alike are computed
 *   once
 */

/** @typedef {Partial<Omit<SchedulerConfig, "latency" | "throughput">> &
 *   {latency?: Partial<QueuePolicy>, throughput?: Partial<QueuePolicy>}} SchedulerOptions */

/**
 * A checked configuration with defaults for what is not given.
 *
 * @param {SchedulerOptions} [options]
 * @returns {Readonly<SchedulerConfig>}
 * @throws {InvalidInput} an unknown name, or a value outside its range
 */
export function schedulerConfig(options = {}) {
  const known = [...Object.keys(KNOBS), ...Object.keys(FLAGS), "latency", "throughput"];
  mustKnow("scheduler", options, known);
  /** @type {Record<string, unknown>} */
  const config = {};
  for (const [name, [byDefault, low]] of Object.entries(KNOBS)) {
    const given = /** @type {Record<string, unknown>} */ (options)[name];
    config[name] = integer(name, given ?? byDefault, low);
  }
  for (const name of PERCENT) {
    const value = /** @type {number} */ (config[name]);
    if (value > 100) throw new InvalidInput(`${name} is ${value}, expected at most 100`);
  }
  config.latency = queuePolicy("latency", options.latency);
  config.throughput = queuePolicy("throughput", options.throughput);
  for (const [name, byDefault] of Object.entries(FLAGS)) {
    const value = /** @type {Record<string, unknown>} */ (options)[name] ?? byDefault;
    if (typeof value !== "boolean") {
      throw new InvalidInput(`${name} is ${String(value)}, expected true or false`);
    }
    config[name] = value;
  }
  return Object.freeze(/** @type {any} */ (config));
}

/**
 * @param {string} of
 * @param {Partial<QueuePolicy>} [options]
 * @returns {Readonly<QueuePolicy>}
 */
function queuePolicy(of, options = {}) {
  mustKnow(of, options, Object.keys(DEFAULT_POLICY));
  const policy = { ...DEFAULT_POLICY, ...options };
  for (const [name, low] of Object.entries(POLICY_LOWEST)) {
    const value = policy[/** @type {keyof typeof POLICY_LOWEST} */ (name)];
    integer(`${of}.${name}`, value, low);
  }
  if (!Object.values(TimeoutAction).includes(policy.timeoutAction)) {
    throw new InvalidInput(
      `${of}.timeoutAction is ${String(policy.timeoutAction)}, expected "reject" or "demote"`,
    );
  }
  return Object.freeze(policy);
}

/**
 * @param {string} what
 * @param {object} options
 * @param {string[]} known
 */
function mustKnow(what, options, known) {
  if (typeof options !== "object" || options === null) {
    throw new InvalidInput(`${what} is ${String(options)}, expected an object of options`);
  }
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new InvalidInput(
      `unknown ${what} option ${unknown}, expected one of ${known.join(", ")}`,
    );
  }
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {number} low
 */
function integer(name, value, low) {
  if (typeof value !== "number" || !Number.isInteger(value) || value < low || value > MAX_KNOB) {
    throw new InvalidInput(
      `${name} is ${String(value)}, expected a whole number from ${low} to ${MAX_KNOB}`,
    );
  }
  return value;
}
