/** What a caller asks of a generation, checked before any work. */
import { checkInt, kindOf } from "../checks.js";
import { InvalidInput, InvalidType } from "../errors.js";

export const MAX_SAMPLES = 128;
export const MAX_STOPS = 64;
export const MAX_STOP_CHARS = 1024;
export const MAX_BIASES = 4096;
export const MAX_TOP_LOGPROBS = 20;
const MIN_TEMPERATURE = 1e-6;

/**
 * Ids generated so far -> which tokens may follow: bit i of ceil(vocabulary / 32) words
 * allows token i; null or nothing allows all.
 *
 * @typedef {(tokenIds: readonly number[]) => Uint32Array | null | undefined} LogitsMask
 */

/**
 * Options of `generate` and `chat`.
 *
 * @typedef {object} SamplingOptions
 * @property {number} [maxTokens] most tokens per sample; by default what the context leaves
 * @property {number} [temperature] 0, the default, takes always the most likely token
 * @property {number} [topK] which tokens may be sampled; 0 allows all
 * @property {number} [topP] 1 allows all
 * @property {number} [minP] 0 allows all
 * @property {number} [repetitionPenalty] above 1 makes tokens of prompt and answer less likely
 * @property {number} [presencePenalty] subtracted from logits of the answer's tokens, once
 * @property {number} [frequencyPenalty] the same, per occurrence
 * @property {Record<number, number> | Map<number, number>} [logitBias] token id -> number
 *   added to its logit
 * @property {LogitsMask} [logitsMask] called before every token with the ids so far
 * @property {boolean | number} [logprobs] true reports every token's log-probability, a
 *   number (up to 20) also the most likely tokens
 * @property {number} [n] samples; they share the prompt's computation
 * @property {number | bigint} [seed] 64 bits; by default one is drawn, which the result names
 * @property {string | readonly string[]} [stop] strings that end a sample; nothing of them is
 *   in its text
 * @property {readonly number[]} [stopTokenIds] ids that end a sample, besides the model's own
 * @property {boolean} [ignoreEos] the model's own do not
 */

/**
 * Checked options.
 *
 * @typedef {object} GenerateOptions
 * @property {number} maxTokens
 * @property {number} temperature
 * @property {number} topK
 * @property {number} topP
 * @property {number} minP
 * @property {number} repetitionPenalty
 * @property {number} presencePenalty
 * @property {number} frequencyPenalty
 * @property {readonly number[]} logitBias pairs of an id and what is added to its logit, by
 *   ascending id
 * @property {LogitsMask | null} logitsMask
 * @property {number} topLogprobs -1 = no log-probabilities at all
 * @property {number} n
 * @property {number | bigint} seed 64 bits; sample i uses `seed + i`
 * @property {readonly string[]} stop
 * @property {readonly number[]} stopTokenIds ascending
 * @property {boolean} ignoreEos
 */

/** Names of `SamplingOptions`. */
export const SAMPLING_OPTIONS = Object.freeze([
  ...["maxTokens", "temperature", "topK", "topP", "minP", "repetitionPenalty"],
  ...["presencePenalty", "frequencyPenalty", "logitBias", "logitsMask", "logprobs", "n"],
  ...["seed", "stop", "stopTokenIds", "ignoreEos"],
]);

/**
 * @param {SamplingOptions} options
 * @param {{vocabSize: number, maxContext: number}} limits
 * @returns {GenerateOptions}
 * @throws {InvalidInput} an option is outside its range; the message names it
 */
export function generateOptions(options, { vocabSize, maxContext }) {
  const { logitsMask = null, seed } = options;
  const ignoreEos = options.ignoreEos ?? false;
  if (logitsMask !== null && typeof logitsMask !== "function") {
    throw new InvalidType(`logitsMask is ${kindOf(logitsMask)}, expected a function`);
  }
  if (typeof ignoreEos !== "boolean") {
    throw new InvalidType(`ignoreEos is ${kindOf(ignoreEos)}, expected true or false`);
  }
  return {
    maxTokens: checkInt("maxTokens", options.maxTokens ?? maxContext, 1, maxContext),
    temperature: checkTemperature(options.temperature ?? 0),
    topK: checkInt("topK", options.topK ?? 0, 0, vocabSize),
    topP: checkNumber("topP", options.topP ?? 1, 0, 1, true),
    minP: checkNumber("minP", options.minP ?? 0, 0, 1),
    repetitionPenalty: checkNumber("repetitionPenalty", options.repetitionPenalty ?? 1, 1e-3, 100),
    presencePenalty: checkNumber("presencePenalty", options.presencePenalty ?? 0, -100, 100),
    frequencyPenalty: checkNumber("frequencyPenalty", options.frequencyPenalty ?? 0, -100, 100),
    logitBias: checkBias(options.logitBias, vocabSize),
    logitsMask,
    topLogprobs: checkLogprobs(options.logprobs ?? false),
    n: checkInt("n", options.n ?? 1, 1, MAX_SAMPLES),
    seed: seed === undefined || seed === null ? drawSeed() : checkSeed(seed),
    stop: checkStops(options.stop),
    stopTokenIds: checkIds("stopTokenIds", options.stopTokenIds ?? [], vocabSize),
    ignoreEos,
  };
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {number} low
 * @param {number} high
 * @param {boolean} [openLow] the lowest value is not allowed
 * @returns {number}
 */
function checkNumber(name, value, low, high, openLow = false) {
  if (typeof value !== "number") {
    throw new InvalidType(`${name} is ${kindOf(value)}, expected a number`);
  }
  if (!(value >= low && value <= high) || (openLow && value === low)) {
    const above = openLow ? "above " : "";
    throw new InvalidInput(`${name} is ${value}, expected ${above}${low} to ${high}`);
  }
  return value;
}

/**
 * Backends divide by it, in f32.
 *
 * @param {unknown} value
 */
function checkTemperature(value) {
  const temperature = checkNumber("temperature", value, 0, 100);
  if (temperature > 0 && temperature < MIN_TEMPERATURE) {
    throw new InvalidInput(
      `temperature is ${temperature}, expected 0, or ${MIN_TEMPERATURE} to 100`,
    );
  }
  return temperature;
}

/** 53 random bits, so that a result's seed is a number that survives JSON. */
function drawSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high >>> 11) * 2 ** 32 + low;
}

/**
 * @param {unknown} seed
 * @returns {number | bigint}
 */
function checkSeed(seed) {
  if (typeof seed === "bigint") {
    if (seed === BigInt.asUintN(64, seed)) return seed;
    throw new InvalidInput(`seed is ${seed}n, expected 0n to ${2n ** 64n - 1n}n`);
  }
  if (typeof seed !== "number") {
    throw new InvalidType(`seed is ${kindOf(seed)}, expected a whole number or a bigint`);
  }
  if (!Number.isSafeInteger(seed) || seed < 0) {
    throw new InvalidInput(
      `seed is ${seed}, expected a whole number from 0 to 2**53 - 1; larger ones as a bigint`,
    );
  }
  return seed;
}

/** @param {unknown} value */
function checkLogprobs(value) {
  if (value === false) return -1;
  return value === true ? 0 : checkInt("logprobs", value, 0, MAX_TOP_LOGPROBS);
}

/**
 * @param {unknown} bias
 * @param {number} vocabSize
 * @returns {number[]}
 */
function checkBias(bias, vocabSize) {
  if (bias === undefined || bias === null) return [];
  if (typeof bias !== "object" || Array.isArray(bias)) {
    throw new InvalidType(`logitBias is ${kindOf(bias)}, expected an object of id: number`);
  }
  const entries = bias instanceof Map ? [...bias] : Object.entries(bias);
  if (entries.length > MAX_BIASES) {
    throw new InvalidInput(
      `logitBias has ${entries.length} entries, expected at most ${MAX_BIASES}`,
    );
  }
  const pairs = entries.map(([id, value]) => [
    checkInt("logitBias id", idOf(id), 0, vocabSize - 1),
    checkNumber(`logitBias[${id}]`, value, -1e6, 1e6),
  ]);
  pairs.sort(([a], [b]) => a - b);
  const twice = pairs.find(([id], i) => i > 0 && id === pairs[i - 1][0]);
  if (twice !== undefined) {
    throw new InvalidInput(`logitBias has the id ${twice[0]} twice, expected it once`);
  }
  return pairs.flat();
}

/**
 * An object's keys are strings; of those only whole numbers are ids.
 *
 * @param {unknown} key
 */
function idOf(key) {
  if (typeof key === "number") return key;
  if (typeof key === "string" && /^-?\d+$/.test(key)) return Number(key);
  const found = typeof key === "string" ? JSON.stringify(key) : kindOf(key);
  throw new InvalidInput(`logitBias has the key ${found}, expected token ids`);
}

/**
 * @param {string} name
 * @param {unknown} ids
 * @param {number} vocabSize
 * @returns {number[]}
 */
function checkIds(name, ids, vocabSize) {
  if (!Array.isArray(ids)) {
    throw new InvalidType(`${name} is ${kindOf(ids)}, expected an array of token ids`);
  }
  ids.forEach((id, i) => checkInt(`${name}[${i}]`, id, 0, vocabSize - 1));
  return [...new Set(ids)].sort((a, b) => a - b);
}

/**
 * @param {unknown} stop
 * @returns {string[]}
 */
function checkStops(stop) {
  if (stop === undefined || stop === null) return [];
  const stops = typeof stop === "string" ? [stop] : stop;
  if (!Array.isArray(stops)) {
    throw new InvalidType(`stop is ${kindOf(stop)}, expected a string or an array of strings`);
  }
  if (stops.length > MAX_STOPS) {
    throw new InvalidInput(`stop has ${stops.length} strings, expected at most ${MAX_STOPS}`);
  }
  stops.forEach((text, i) => {
    if (typeof text !== "string") {
      throw new InvalidType(`stop[${i}] is ${kindOf(text)}, expected a string`);
    }
    if (text.length === 0 || text.length > MAX_STOP_CHARS) {
      throw new InvalidInput(
        `stop[${i}] has ${text.length} characters, expected 1 to ${MAX_STOP_CHARS}`,
      );
    }
  });
  return [...new Set(stops)];
}
