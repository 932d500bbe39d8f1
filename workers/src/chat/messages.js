/** Checking messages, and disarming the control tokens in what people wrote. */
import { kindOf } from "../checks.js";
import { InvalidInput, InvalidType } from "../errors.js";

export const ROLES = Object.freeze(["system", "developer", "user", "assistant", "tool"]);

// Private use: in no vocabulary as a token of meaning
const FIRST_GUARD = 0xe000;
const LAST_GUARD = 0xf8fe;

const MAX_DEPTH = 64;

/**
 * @typedef {Record<string, unknown> & {role: string, content: string}} Message
 */

/**
 * Copies of `messages`, each with a known role and a content. Content is a string, or an
 * array of `{type: "text", text}`, which is joined. Other fields are for the template.
 *
 * @param {unknown} messages
 * @returns {Message[]}
 * @throws {InvalidInput} names the message
 */
export function checkMessages(messages) {
  if (!Array.isArray(messages)) {
    throw new InvalidType(
      `messages is ${kindOf(messages)}, expected an array of {role: ..., content: ...}`,
    );
  }
  if (messages.length === 0) {
    throw new InvalidInput("messages is empty, expected at least one message");
  }
  return messages.map(check);
}

/**
 * What a template is given besides the messages.
 *
 * @param {unknown} tools
 * @param {unknown} templateOptions
 * @throws {InvalidType} it is something else
 */
export function checkTemplateOptions(tools, templateOptions) {
  if (tools !== undefined && tools !== null && !Array.isArray(tools)) {
    throw new InvalidType(`tools is ${kindOf(tools)}, expected an array`);
  }
  const isObject = typeof templateOptions === "object" && !Array.isArray(templateOptions);
  if (templateOptions !== undefined && !isObject) {
    throw new InvalidType(`templateOptions is ${kindOf(templateOptions)}, expected an object`);
  }
}

/**
 * @param {unknown} message
 * @param {number} index
 * @returns {Message}
 */
function check(message, index) {
  if (typeof message !== "object" || message === null || Array.isArray(message)) {
    throw new InvalidType(`messages[${index}] is ${kindOf(message)}, expected an object`);
  }
  const { role, content } = /** @type {Record<string, unknown>} */ (message);
  if (typeof role !== "string" || !ROLES.includes(role)) {
    throw new InvalidInput(
      `messages[${index}] has role ${JSON.stringify(role)}, expected one of ${ROLES.join(", ")}`,
    );
  }
  const text = Array.isArray(content) ? joined(content, index) : content;
  if (typeof text !== "string") {
    throw new InvalidType(
      `messages[${index}] has content of type ${kindOf(text)}, expected a string`,
    );
  }
  return { ...message, role, content: text };
}

/**
 * @param {readonly unknown[]} parts
 * @param {number} index
 */
function joined(parts, index) {
  return parts
    .map((part) => {
      const { type, text } = /** @type {Record<string, unknown>} */ (part ?? {});
      if (type !== "text" || typeof text !== "string") {
        throw new InvalidInput(
          `messages[${index}] has a content part ${JSON.stringify(part)}, expected ` +
            '{type: "text", text: string}',
        );
      }
      return text;
    })
    .join("");
}

/**
 * The messages with a guard character inside every control token that a string of theirs
 * holds, and that character, which none of them holds otherwise.
 *
 * A template can trim, join and compare such strings as it likes; where the text is
 * tokenized the guard tells the template's own control tokens from forged ones.
 *
 * @param {readonly Message[]} messages
 * @param {readonly string[]} controlTokens longest first
 * @returns {{messages: Message[], guard: string}}
 */
export function guarded(messages, controlTokens) {
  /** @type {string[]} */
  const strings = [];
  mapped(messages, (text) => {
    strings.push(text);
    return text;
  });
  const everything = strings.join("");
  let code = FIRST_GUARD;
  while (everything.includes(String.fromCharCode(code))) {
    if (++code > LAST_GUARD) {
      throw new InvalidInput("messages use every private-use character, expected text");
    }
  }
  const guard = String.fromCharCode(code);
  const disarm = (/** @type {string} */ text) => {
    for (const token of controlTokens) {
      const [first] = token;
      text = text.replaceAll(token, () => first + guard + token.slice(first.length));
    }
    return text;
  };
  return { messages: /** @type {Message[]} */ (mapped(messages, disarm)), guard };
}

/**
 * A copy with every string changed, names of fields included.
 *
 * @param {unknown} value
 * @param {(text: string) => string} change
 * @param {number} [depth] how many levels it lies in
 * @returns {unknown}
 */
function mapped(value, change, depth = 0) {
  if (typeof value === "string") return change(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth > MAX_DEPTH) {
    throw new InvalidInput(
      `messages are nested deeper than ${MAX_DEPTH} levels, expected plain data`,
    );
  }
  if (Array.isArray(value)) return value.map((v) => mapped(v, change, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([k, v]) => [change(k), mapped(v, change, depth + 1)]),
  );
}
