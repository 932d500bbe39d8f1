/** Reading a request's body: JSON of bounded size and depth. */
import { BadField, HttpError } from "./errors.js";
import { kindOf } from "../checks.js";

const MAX_DEPTH = 64;
/** A body of up to so many times the limit is read to its end before it is refused. */
const DRAIN = 8;

/**
 * The body, an object.
 *
 * @param {Request} request
 * @param {number} maxBytes
 * @returns {Promise<Record<string, unknown>>}
 * @throws {HttpError} 400 or 413
 */
export async function readJson(request, maxBytes) {
  const text = await readText(request, maxBytes);
  let value;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const [line] = String(cause).split("\n");
    throw new HttpError(400, "invalid_json", `the body is no JSON (${line.slice(0, 200)})`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new HttpError(400, "invalid_json", `the body is ${kindOf(value)}, expected an object`);
  }
  checkDepth(value);
  return value;
}

/**
 * @param {Request} request
 * @param {number} maxBytes
 */
async function readText(request, maxBytes) {
  const tooLarge = () =>
    new HttpError(
      413,
      "body_too_large",
      `the body has more than ${maxBytes} bytes; send fewer inputs at once`,
    );
  // Many clients look for an answer only when they have sent everything
  const mostBytes = DRAIN * maxBytes;
  if (Number(request.headers.get("content-length")) > mostBytes) throw tooLarge();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let size = 0;
  try {
    if (request.body !== null) {
      for (const reader = request.body.getReader(); ;) {
        const { done, value } = await reader.read();
        if (done) break;
        size += value.byteLength;
        if (size > mostBytes) {
          void reader.cancel().catch(() => {});
          throw tooLarge();
        }
        if (size <= maxBytes) text += decoder.decode(value, { stream: true });
      }
    }
    if (size > maxBytes) throw tooLarge();
    return text + decoder.decode();
  } catch (error) {
    if (error instanceof HttpError) throw error;
    throw new HttpError(400, "invalid_body", "the body could not be read, expected UTF-8");
  }
}

/**
 * Templates walk what they are given recursively.
 *
 * @param {Record<string, unknown>} body
 */
function checkDepth(body) {
  for (const [name, field] of Object.entries(body)) {
    /** @type {unknown[]} */
    let level = [field];
    for (let depth = 1; level.length > 0; depth++) {
      if (depth > MAX_DEPTH) {
        throw new BadField(name, `${name} is nested deeper than ${MAX_DEPTH} levels`);
      }
      level = level.flatMap((value) =>
        typeof value === "object" && value !== null ? Object.values(value) : [],
      );
    }
  }
}
