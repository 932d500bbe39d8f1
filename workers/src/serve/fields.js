/**
 * Fields of a request's body as options of the model's calls. What a value may be is checked by
 * the call itself; its messages begin with the option's name, which becomes the field's.
 */
import { kindOf } from "../checks.js";
import { DeadlineExceeded, RequestError } from "../errors.js";
import { BadField, HttpError, failureOf } from "./errors.js";

/** @typedef {Record<string, unknown>} Body */

/** Fields of the API that change nothing here. */
const IGNORED = [
  ...["model", "user", "metadata", "store", "service_tier", "safety_identifier"],
  ...["prompt_cache_key", "parallel_tool_calls"],
];

/** Field -> option, in every call. */
const SCHEDULING = { traffic: "traffic", deadline_ms: "deadlineMs", tenant: "tenant" };

/** Field -> option of `embed`. */
export const EMBED_FIELDS = {
  input: "texts",
  dimensions: "dimensions",
  truncate: "truncate",
  prompt_name: "promptName",
  latency_target_ms: "latencyTargetMs",
  ...SCHEDULING,
};

/** Field -> option of `generate` and `chat`. */
export const SAMPLING_FIELDS = {
  max_tokens: "maxTokens",
  temperature: "temperature",
  top_k: "topK",
  top_p: "topP",
  min_p: "minP",
  repetition_penalty: "repetitionPenalty",
  presence_penalty: "presencePenalty",
  frequency_penalty: "frequencyPenalty",
  logit_bias: "logitBias",
  n: "n",
  seed: "seed",
  stop: "stop",
  stop_token_ids: "stopTokenIds",
  ignore_eos: "ignoreEos",
  cache_salt: "cacheSalt",
  ttft_target_ms: "ttftTargetMs",
  tpot_target_ms: "tpotTargetMs",
  ...SCHEDULING,
};

/**
 * Refuse fields that nobody knows: a misspelt one would be ignored in silence. Fields that are
 * null count as absent, here and everywhere.
 *
 * @param {Body} body
 * @param {readonly string[]} known
 * @param {Readonly<Record<string, readonly unknown[]>>} [fixed] fields of the API that are
 *   taken with these values only, which say what happens anyway
 * @returns {Body} the fields that are set
 */
export function setFields(body, known, fixed = {}) {
  /** @type {Body} */
  const found = {};
  for (const [name, value] of Object.entries(body)) {
    if (value === null || IGNORED.includes(name)) continue;
    if (known.includes(name)) {
      found[name] = value;
    } else if (!Object.hasOwn(fixed, name)) {
      throw new BadField(
        name,
        `unknown field ${JSON.stringify(name.slice(0, 100))}, expected one of ${known.join(", ")}`,
      );
    } else if (!fixed[name].some((v) => JSON.stringify(v) === JSON.stringify(value))) {
      const can = fixed[name].map((v) => JSON.stringify(v)).join(" or ");
      throw new BadField(name, `${name} is not supported here, expected ${can} or nothing`);
    }
  }
  return found;
}

/**
 * @param {Body} fields
 * @param {Readonly<Record<string, string>>} names field -> option
 * @returns {Record<string, any>} options
 */
export function optionsOf(fields, names) {
  /** @type {Record<string, any>} */
  const options = {};
  for (const [field, option] of Object.entries(names)) {
    if (fields[field] !== undefined) options[option] = fields[field];
  }
  return options;
}

/**
 * Traffic class, tenant and deadline from headers, which a proxy may set and which go before the
 * body. A deadline counts
 * from the request's arrival, so that loading a model is part of it.
 *
 * @param {Record<string, any>} options
 * @param {Headers} headers
 * @param {number} arrivedMs on the clock of `performance.now`
 */
export function addScheduling(options, headers, arrivedMs) {
  for (const name of ["traffic", "tenant"]) {
    const value = headers.get(`x-volery-${name}`);
    if (value !== null) options[name] = value;
  }
  const deadline = headers.get("x-volery-deadline-ms");
  if (deadline !== null) options.deadlineMs = Number(deadline);
  if (typeof options.deadlineMs === "number" && options.deadlineMs > 0) {
    options.deadlineMs -= performance.now() - arrivedMs;
    if (options.deadlineMs <= 0) {
      throw new DeadlineExceeded("the deadline passed before the model was there; allow more time");
    }
  }
}

/**
 * @param {Body} fields
 * @param {string} name
 * @returns {boolean}
 */
export function flag(fields, name) {
  const value = fields[name] ?? false;
  if (typeof value === "boolean") return value;
  throw new BadField(name, `${name} is ${kindOf(value)}, expected true or false`);
}

/**
 * @param {Body} fields
 * @param {string} name
 * @param {number} low
 * @param {number} high
 * @returns {number | undefined}
 */
export function wholeNumber(fields, name, low, high) {
  const value = fields[name];
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isInteger(value) && value >= low && value <= high) {
    return value;
  }
  const found = typeof value === "number" ? value : kindOf(value);
  throw new BadField(name, `${name} is ${found}, expected a whole number from ${low} to ${high}`);
}

/**
 * Do something whose errors name options, and name the fields instead.
 *
 * @template T
 * @param {Readonly<Record<string, string>>} names field -> option
 * @param {() => T} call
 * @returns {T}
 */
export function naming(names, call) {
  const rename = (/** @type {unknown} */ error) => {
    if (!(error instanceof RequestError)) return error;
    const { status, error: told } = failureOf(error, false);
    for (const [field, option] of Object.entries(names)) {
      const rest = error.message.slice(option.length);
      if (error.message.startsWith(option) && !/^\w/.test(rest)) {
        const [path] = /^(\[\d+\])*/.exec(rest) ?? [""];
        return new HttpError(status, told.code, field + rest, { param: field + path });
      }
    }
    return error;
  };
  let result;
  try {
    result = call();
  } catch (error) {
    throw rename(error);
  }
  if (!(result instanceof Promise)) return result;
  const renamed = result.catch((error) => {
    throw rename(error);
  });
  return /** @type {T} */ (renamed);
}

/**
 * @param {Body} fields
 * @param {string} name
 * @throws {HttpError} it is not there
 */
export function checkPresent(fields, name) {
  if (fields[name] !== undefined) return;
  throw new HttpError(400, "missing_field", `${name} is missing; send it`, { param: name });
}
