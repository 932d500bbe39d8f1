/** `POST /v1/embeddings`. */
import { BadField } from "./errors.js";
import {
  EMBED_FIELDS,
  addScheduling,
  checkPresent,
  naming,
  optionsOf,
  setFields,
} from "./fields.js";

/** @typedef {import("../embedding/options.js").EmbedOptions} EmbedOptions */
/** @typedef {import("../embedding/vectors.js").Vector} Vector */
/** @typedef {import("./call.js").Call} Call */

const MAX_INPUTS = 2048;
const FIELDS = [...Object.keys(EMBED_FIELDS), "encoding_format"];

/**
 * @param {Call} call
 * @returns {Promise<Response>}
 */
export async function embeddings(call) {
  const fields = setFields(call.body, FIELDS);
  checkPresent(fields, "input");
  const { input, ...rest } = fields;
  const encode = encoderOf(fields.encoding_format ?? "float");
  const inputs = inputsOf(input);
  const { name, model } = await call.find("embed");
  // A text that is cut unasked is a worse answer than none
  /** @type {EmbedOptions} */
  const options = { truncate: "error", ...optionsOf(rest, EMBED_FIELDS), signal: call.signal };
  addScheduling(options, call.headers, call.arrivedMs);
  const result = await naming(EMBED_FIELDS, () => model.embedWithInfo(inputs, options));
  const { tokenCounts, truncated, queueMs, deviceMs, steps, batchSeqs, batchTokens } = result;
  const vectors = /** @type {Vector[]} */ (result.vectors);
  const tokens = tokenCounts.reduce((sum, count) => sum + count, 0);
  call.metrics.embedded(name, { texts: inputs.length, tokens, queueMs });
  return Response.json({
    object: "list",
    data: vectors.map((vector, index) => {
      return { object: "embedding", index, embedding: encode(vector) };
    }),
    model: name,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
    volery: {
      queue_ms: queueMs,
      device_ms: deviceMs,
      steps,
      batch_seqs: batchSeqs,
      batch_tokens: batchTokens,
      truncated: truncated.flatMap((cut, index) => (cut ? [index] : [])),
    },
  });
}

/**
 * A list, whose items the model checks.
 *
 * @param {unknown} input
 * @returns {(string | number[])[]}
 */
function inputsOf(input) {
  if (typeof input === "string") return [input];
  if (!Array.isArray(input)) {
    throw new BadField("input", "input is neither a string nor an array of strings or token ids");
  }
  if (typeof input[0] === "number") return [input];
  if (input.length > MAX_INPUTS) {
    throw new BadField(
      "input",
      `input has ${input.length} texts, expected at most ${MAX_INPUTS}; send several requests`,
    );
  }
  return input;
}

/**
 * @param {unknown} format
 * @returns {(vector: Float32Array) => number[] | string}
 */
function encoderOf(format) {
  if (format === "float") return (vector) => Array.from(vector);
  if (format === "base64") return base64;
  throw new BadField(
    "encoding_format",
    `encoding_format is ${JSON.stringify(format)?.slice(0, 100)}, expected "float" or "base64"`,
  );
}

/**
 * The numbers as little-endian f32.
 *
 * @param {Float32Array} vector
 */
function base64(vector) {
  const bytes = new Uint8Array(4 * vector.length);
  const view = new DataView(bytes.buffer);
  vector.forEach((x, i) => view.setFloat32(4 * i, x, true));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
