/** `POST /v1/chat/completions`. */
import { kindOf } from "../checks.js";
import { BadField } from "./errors.js";
import { SAMPLING_FIELDS, checkPresent, flag, naming, setFields, wholeNumber } from "./fields.js";
import { answer } from "./generation.js";
import { COMMON_FIELDS, deliveryOf, samplingOf } from "./sampling.js";
import { CHAT } from "./shapes.js";

/** @typedef {import("./call.js").Call} Call */
/** @typedef {import("./fields.js").Body} Body */

const MAX_TOP_LOGPROBS = 20;
const FIELDS = [
  ...COMMON_FIELDS,
  ...["messages", "max_completion_tokens", "logprobs", "top_logprobs", "tools", "tool_choice"],
  "chat_template_kwargs",
];
const FIXED = { response_format: [{ type: "text" }], modalities: [["text"]] };

/**
 * @param {Call} call
 * @returns {Promise<Response>}
 */
export async function chatCompletions(call) {
  const fields = setFields(call.body, FIELDS, FIXED);
  checkPresent(fields, "messages");
  const { max_completion_tokens: most, ...rest } = fields;
  if (most !== undefined) {
    wholeNumber(fields, "max_completion_tokens", 1, 2 ** 31 - 1);
    rest.max_tokens = most;
  }
  const delivery = deliveryOf(fields);
  const logprobs = logprobsOf(fields);
  const tools = toolsOf(fields);
  const templateOptions = templateOptionsOf(fields);
  const { name, model } = await call.find("generate");
  const options = samplingOf(call, rest, model, { logprobs, tools, templateOptions });
  const messages = /** @type {any} */ (fields.messages);
  const stream = naming(SAMPLING_FIELDS, () => model.chat(messages, options));
  return answer(call, {
    name,
    model,
    streams: [stream],
    n: options.n ?? 1,
    shape: CHAT,
    hasLogprobs: logprobs !== false,
    delivery,
  });
}

/** @param {Body} fields */
function logprobsOf(fields) {
  const top = wholeNumber(fields, "top_logprobs", 0, MAX_TOP_LOGPROBS);
  if (flag(fields, "logprobs")) return top ?? true;
  if (top === undefined) return false;
  throw new BadField("top_logprobs", "top_logprobs is set, expected logprobs: true with it");
}

/**
 * Descriptions for the template; calls that the model writes are text of its answer.
 *
 * @param {Body} fields
 * @returns {unknown[] | undefined}
 */
function toolsOf({ tools, tool_choice: choice = "auto" }) {
  if (choice !== "auto" && choice !== "none") {
    throw new BadField(
      "tool_choice",
      'tool_choice is not supported here, expected "auto" or "none"',
    );
  }
  if (tools !== undefined && !Array.isArray(tools)) {
    throw new BadField("tools", `tools is ${kindOf(tools)}, expected an array`);
  }
  return choice === "none" ? undefined : tools;
}

/**
 * @param {Body} fields
 * @returns {Record<string, unknown> | undefined}
 */
function templateOptionsOf({ chat_template_kwargs: options }) {
  if (options === undefined) return undefined;
  if (typeof options === "object" && options !== null && !Array.isArray(options)) {
    return /** @type {Record<string, unknown>} */ (options);
  }
  throw new BadField(
    "chat_template_kwargs",
    `chat_template_kwargs is ${kindOf(options)}, expected an object`,
  );
}
