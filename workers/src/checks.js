/** Checks of arguments that every call shares. */
import { TrafficClass } from "./batching/index.js";
import { InvalidInput, InvalidType } from "./errors.js";

export const MAX_DEADLINE_MS = 1e9;
export const MAX_TARGET_MS = 1e9;

/**
 * The kind of a value, as messages name it.
 *
 * @param {unknown} value
 */
export function kindOf(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : typeof value;
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {number} low
 * @param {number} high
 * @returns {number}
 */
export function checkInt(name, value, low, high) {
  if (typeof value !== "number") {
    throw new InvalidType(`${name} is ${kindOf(value)}, expected a whole number`);
  }
  if (!Number.isInteger(value) || value < low || value > high) {
    throw new InvalidInput(`${name} is ${value}, expected a whole number from ${low} to ${high}`);
  }
  return value;
}

/**
 * @template {string} T
 * @param {string} name
 * @param {unknown} value
 * @param {readonly T[]} choices
 * @returns {T}
 */
export function checkChoice(name, value, choices) {
  const found = choices.find((choice) => choice === value);
  if (found !== undefined) return found;
  const expected = choices.map((choice) => `"${choice}"`).join(" or ");
  throw new InvalidInput(
    `${name} is ${JSON.stringify(value) ?? kindOf(value)}, expected ${expected}`,
  );
}

/** @typedef {"latency" | "throughput"} TrafficName */

/**
 * @param {unknown} traffic
 * @returns {import("./batching/types.js").Traffic}
 */
export function checkTraffic(traffic) {
  const name = checkChoice("traffic", traffic, ["latency", "throughput"]);
  return name === "latency" ? TrafficClass.LATENCY : TrafficClass.THROUGHPUT;
}

/**
 * @param {unknown} deadlineMs
 * @param {number} nowNs
 * @returns {number} on the clock of `nowNs`; -1 = never
 */
export function checkDeadline(deadlineMs, nowNs) {
  if (deadlineMs === undefined || deadlineMs === null) return -1;
  if (typeof deadlineMs !== "number" || !(deadlineMs > 0 && deadlineMs <= MAX_DEADLINE_MS)) {
    throw new InvalidInput(
      `deadlineMs is ${String(deadlineMs)}, expected a number above 0 and up to ${MAX_DEADLINE_MS}`,
    );
  }
  return nowNs + Math.trunc(deadlineMs * 1e6);
}

/**
 * A target in nanoseconds.
 *
 * @param {string} name
 * @param {unknown} targetMs
 * @returns {number} -1 = the model's
 */
export function checkTarget(name, targetMs) {
  if (targetMs === undefined || targetMs === null) return -1;
  if (typeof targetMs !== "number" || !(targetMs >= 0 && targetMs <= MAX_TARGET_MS)) {
    throw new InvalidInput(
      `${name} is ${String(targetMs)}, expected a number from 0 to ${MAX_TARGET_MS}`,
    );
  }
  return Math.trunc(targetMs * 1e6);
}

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {string}
 */
export function checkText(name, value) {
  if (typeof value === "string") return value;
  throw new InvalidType(`${name} is ${kindOf(value)}, expected a string`);
}

/**
 * Refuse a name that no option has: a misspelt one would be ignored in silence.
 *
 * @param {unknown} options
 * @param {readonly string[]} known
 */
export function checkNames(options, known) {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new InvalidType(`options is ${kindOf(options)}, expected an object`);
  }
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new InvalidInput(`unknown option ${unknown}, expected one of ${known.join(", ")}`);
  }
}

/**
 * @param {unknown} signal
 * @returns {AbortSignal | undefined}
 */
export function checkSignal(signal) {
  if (signal === undefined || signal === null) return undefined;
  const found = /** @type {AbortSignal} */ (signal);
  if (typeof found.aborted !== "boolean" || typeof found.addEventListener !== "function") {
    throw new InvalidType(`signal is ${kindOf(signal)}, expected an AbortSignal`);
  }
  return found;
}

/**
 * @param {string} text
 * @param {string} what names it in messages
 * @throws {InvalidInput} it holds half of a surrogate pair
 */
export function checkUnicode(text, what) {
  const at = text.search(/\p{Surrogate}/u);
  if (at < 0) return;
  const unit = text.charCodeAt(at).toString(16);
  throw new InvalidInput(
    `${what} holds "\\u${unit}" at character ${at}, a lone surrogate, expected valid Unicode; ` +
      "use text.toWellFormed()",
  );
}
