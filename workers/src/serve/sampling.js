/** What chats and completions have in common: sampling options and how the answer comes. */
import { BadField } from "./errors.js";
import { SAMPLING_FIELDS, addScheduling, flag, optionsOf, wholeNumber } from "./fields.js";
import { kindOf } from "../checks.js";

/** @typedef {import("../model.js").Model} Model */
/** @typedef {import("./call.js").Call} Call */
/** @typedef {import("./fields.js").Body} Body */

export const COMMON_FIELDS = [...Object.keys(SAMPLING_FIELDS), "stream", "stream_options"];

/**
 * @param {Call} call
 * @param {Body} fields
 * @param {Model} model
 * @param {Record<string, unknown>} own the endpoint's own options
 * @returns {Record<string, any>} options of `generate`
 */
export function samplingOf(call, fields, model, own) {
  const { maxContext } = model.info;
  /** @type {Record<string, any>} */
  const options = {
    ...call.defaults,
    ...optionsOf(fields, SAMPLING_FIELDS),
    ...own,
    signal: call.signal,
  };
  // Clients name a limit, not a wish: what the context leaves is less
  const most = wholeNumber(fields, "max_tokens", 1, 2 ** 31 - 1);
  if (most !== undefined) options.maxTokens = Math.min(most, maxContext);
  const seed = wholeNumber(fields, "seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  if (seed !== undefined && seed < 0) options.seed = BigInt.asUintN(64, BigInt(seed));
  addScheduling(options, call.headers, call.arrivedMs);
  return options;
}

/**
 * @param {Body} fields
 * @returns {{stream: boolean, includeUsage: boolean}}
 */
export function deliveryOf(fields) {
  const stream = flag(fields, "stream");
  const options = fields.stream_options ?? {};
  if (typeof options !== "object" || Array.isArray(options)) {
    const kind = kindOf(options);
    throw new BadField("stream_options", `stream_options is ${kind}, expected an object`);
  }
  if (fields.stream_options !== undefined && !stream) {
    throw new BadField("stream_options", "stream_options is set, expected stream: true with it");
  }
  const { include_usage: includeUsage = false } = /** @type {Body} */ (options);
  if (includeUsage !== null && typeof includeUsage !== "boolean") {
    throw new BadField(
      "stream_options.include_usage",
      `stream_options.include_usage is ${kindOf(includeUsage)}, expected true or false`,
    );
  }
  return { stream, includeUsage: includeUsage === true };
}
