/** `POST /v1/completions`. */
import { kindOf } from "../checks.js";
import { BadField } from "./errors.js";
import { SAMPLING_FIELDS, checkPresent, naming, setFields, wholeNumber } from "./fields.js";
import { answer } from "./generation.js";
import { COMMON_FIELDS, deliveryOf, samplingOf } from "./sampling.js";
import { COMPLETION } from "./shapes.js";

/** @typedef {import("./call.js").Call} Call */

const DEFAULT_MAX_TOKENS = 16;
const MAX_TOP_LOGPROBS = 20;
const MAX_PROMPTS = 128;
const FIELDS = [...COMMON_FIELDS, "prompt", "logprobs"];
const FIXED = { echo: [false], best_of: [1], suffix: [""] };

/**
 * @param {Call} call
 * @returns {Promise<Response>}
 */
export async function completions(call) {
  const fields = setFields(call.body, FIELDS, FIXED);
  checkPresent(fields, "prompt");
  const prompts = promptsOf(fields.prompt);
  const delivery = deliveryOf(fields);
  const logprobs = wholeNumber(fields, "logprobs", 0, MAX_TOP_LOGPROBS) ?? false;
  const { name, model } = await call.find("generate");
  const options = samplingOf(call, { max_tokens: DEFAULT_MAX_TOKENS, ...fields }, model, {
    logprobs,
  });
  const streams = naming(SAMPLING_FIELDS, () =>
    prompts.map((prompt) => model.generate(prompt, options)),
  );
  return answer(call, {
    name,
    model,
    streams,
    n: options.n ?? 1,
    shape: COMPLETION,
    hasLogprobs: logprobs !== false,
    delivery,
  });
}

/**
 * A list, whose items the model checks.
 *
 * @param {unknown} prompt
 * @returns {(string | number[])[]}
 */
function promptsOf(prompt) {
  if (typeof prompt === "string") return [prompt];
  if (!Array.isArray(prompt)) {
    throw new BadField(
      "prompt",
      `prompt is ${kindOf(prompt)}, expected a string, token ids, or an array of either`,
    );
  }
  if (typeof prompt[0] === "number") return [prompt];
  if (prompt.length === 0 || prompt.length > MAX_PROMPTS) {
    throw new BadField(
      "prompt",
      `prompt has ${prompt.length} prompts, expected 1 to ${MAX_PROMPTS}`,
    );
  }
  return prompt;
}
