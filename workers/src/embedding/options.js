/** Checking the options of an embedding call against the model. */
import {
  checkChoice,
  checkInt,
  checkNames,
  checkSignal,
  checkTarget,
  checkText,
  checkTraffic,
  kindOf,
} from "../checks.js";
import { InvalidInput, InvalidType } from "../errors.js";

/** @typedef {import("../model.js").ModelFacts} ModelFacts */

/**
 * Options of `embed`.
 *
 * @typedef {object} EmbedOptions
 * @property {string | null} [promptName] which of the model's prompts to put before every
 *   text; by default the model's own choice, if it has one
 * @property {string | null} [prompt] the prompt itself, instead of a name; "" = none
 * @property {number} [dimensions] keep this many leading dimensions (and normalise again, if
 *   the model does)
 * @property {boolean} [normalize] true scales vectors to length 1; by default what the model
 *   does
 * @property {"float32" | "float16"} [dtype]
 * @property {"end" | "error"} [truncate] "end" cuts a text that is too long
 *   (`embedWithInfo` tells), "error" refuses it
 * @property {"latency" | "throughput"} [traffic] "latency" when somebody waits for the
 *   answer, "throughput" for bulk work that yields to it
 * @property {number} [deadlineMs] fail as soon as the result cannot be there in this time
 * @property {number} [latencyTargetMs] wish to have it in this time (beyond what it takes
 *   alone); by default as the model is configured. Decides who goes first, fails nothing
 * @property {string} [tenant] on whose behalf; tenants share the device fairly
 * @property {AbortSignal} [signal] ends the call with `Aborted`
 */

/**
 * What a call asks for, checked.
 *
 * @typedef {object} EncodeOptions
 * @property {string} prompt text put before every input
 * @property {boolean} excludePrompt pooling leaves the prompt's tokens out
 * @property {"end" | "error"} truncate
 * @property {import("../batching/types.js").Traffic} traffic
 * @property {number} latencyTargetNs -1 = the model's
 * @property {string} tenant
 * @property {AbortSignal | undefined} signal
 */

const NAMES = [
  ...["promptName", "prompt", "dimensions", "normalize", "dtype", "truncate", "traffic"],
  ...["deadlineMs", "latencyTargetMs", "tenant", "signal"],
];

/**
 * @param {EmbedOptions} options
 * @param {ModelFacts} facts
 * @param {object} [stream]
 * @param {"latency" | "throughput"} [stream.traffic] the default
 * @param {readonly string[]} [stream.names] further options of the call
 * @returns {EncodeOptions}
 * @throws {InvalidInput} an option is outside its range; the message names it
 */
export function encodeOptions(options, facts, { traffic = "latency", names = [] } = {}) {
  checkNames(options, [...NAMES, ...names]);
  return {
    prompt: promptOf(options, facts),
    excludePrompt: !facts.includePrompt,
    truncate: checkChoice("truncate", options.truncate ?? "end", ["end", "error"]),
    traffic: checkTraffic(options.traffic ?? traffic),
    latencyTargetNs: checkTarget("latencyTargetMs", options.latencyTargetMs),
    tenant: checkText("tenant", options.tenant ?? ""),
    signal: checkSignal(options.signal),
  };
}

/**
 * How a caller wants vectors.
 *
 * @typedef {object} VectorFormat
 * @property {number} width columns of the backend's rows
 * @property {number} dimensions columns to keep, from the left (Matryoshka models)
 * @property {boolean} normalize scale what is kept to length 1
 * @property {"float32" | "float16"} dtype
 */

/**
 * @param {EmbedOptions} options
 * @param {ModelFacts} facts
 * @returns {VectorFormat}
 */
export function vectorFormat(options, { dimensions: width, normalized }) {
  const dimensions = checkInt("dimensions", options.dimensions ?? width, 1, width);
  const { normalize = null } = options;
  if (normalize !== null && typeof normalize !== "boolean") {
    throw new InvalidType(`normalize is ${kindOf(normalize)}, expected true or false`);
  }
  if (normalize === false && normalized) {
    throw new InvalidInput(
      "normalize is false, but the model's own last step normalises; export it without that step",
    );
  }
  const dtype = checkChoice("dtype", options.dtype ?? "float32", ["float32", "float16"]);
  if (dtype === "float16" && !("Float16Array" in globalThis)) {
    throw new InvalidInput(
      'dtype "float16" needs Float16Array, which this host lacks; use "float32"',
    );
  }
  const again = normalized ? dimensions < width : normalize === true;
  return { width, dimensions, normalize: again, dtype };
}

/**
 * @param {EmbedOptions} options
 * @param {ModelFacts} facts
 */
function promptOf({ prompt = null, promptName = null }, { prompts, defaultPromptName }) {
  if (prompt !== null) {
    if (promptName !== null) {
      throw new InvalidInput("prompt and promptName are both set, expected one of them");
    }
    if (typeof prompt !== "string") {
      throw new InvalidType(`prompt is ${kindOf(prompt)}, expected a string`);
    }
    return prompt;
  }
  const name = promptName ?? defaultPromptName;
  if (name === null) return "";
  if (!Object.hasOwn(prompts, name)) {
    const known = Object.keys(prompts).sort().join(", ") || "none";
    throw new InvalidInput(
      `promptName is ${JSON.stringify(name)}, the model has ${known}; pass the text itself as prompt`,
    );
  }
  return prompts[name];
}
