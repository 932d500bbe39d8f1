/** From a prompt or a chat to a running generation. */
import { checkMessages, checkTemplateOptions, guarded } from "../chat/messages.js";
import {
  checkDeadline,
  checkInt,
  checkNames,
  checkSignal,
  checkTarget,
  checkText,
  checkTraffic,
  kindOf,
} from "../checks.js";
import { InvalidInput, InvalidType, TooLong } from "../errors.js";
import { SAMPLING_OPTIONS, generateOptions } from "./options.js";
import { GenerationStream } from "./stream.js";

/** @typedef {import("../chat/template.js").ChatTemplate} ChatTemplate */
/** @typedef {import("../engine/engine.js").Engine} Engine */
/** @typedef {import("./options.js").SamplingOptions} SamplingOptions */
/** @typedef {import("./tokenizer.js").TextTokenizer} TextTokenizer */

/**
 * What a loaded model can generate.
 *
 * @typedef {object} GenerationInfo
 * @property {number} vocabSize ids
 * @property {number} maxContext most tokens of a sequence, prompt and answer
 * @property {readonly number[]} eosTokenIds ids that end an answer: the union of what the
 *   model's files name
 * @property {boolean} chat it has a chat template
 */

/**
 * @typedef {object} SchedulingOptions
 * @property {"latency" | "throughput"} [traffic] "latency", the default, when somebody waits
 *   for the answer, "throughput" for bulk work that yields to it
 * @property {number} [deadlineMs] fail when the answer is not complete in this time
 * @property {number} [ttftTargetMs] wish to have the first token in this time (beyond what the
 *   prompt takes alone); by default as the model is configured. Decides who goes first, and
 *   fails nothing
 * @property {number} [tpotTargetMs] wish to have every next one in this time: decides how much
 *   of others' prompts a step holds
 * @property {string} [tenant] on whose behalf; tenants share the device fairly
 * @property {string} [cacheSalt] computed prefixes are shared only among equal ones
 * @property {AbortSignal} [signal] ends the generation with `Aborted`
 */

/** @typedef {SamplingOptions & SchedulingOptions} GenerateArguments */

/**
 * @typedef {object} ChatOptions
 * @property {readonly unknown[]} [tools] descriptions for templates that know tools
 * @property {Record<string, unknown>} [templateOptions] further names for the template
 */

/** @typedef {GenerateArguments & ChatOptions} ChatArguments */

const SCHEDULING_OPTIONS = [
  ...["traffic", "deadlineMs", "ttftTargetMs", "tpotTargetMs", "tenant", "cacheSalt", "signal"],
];
const GENERATE_OPTIONS = [...SAMPLING_OPTIONS, ...SCHEDULING_OPTIONS];
const CHAT_OPTIONS = [...GENERATE_OPTIONS, "tools", "templateOptions"];

/** `Model.generate` and `Model.chat`. */
export class Generator {
  #engine;
  #tokenizer;
  #template;

  /**
   * @param {Engine} engine runs the sequences
   * @param {TextTokenizer} tokenizer the model's
   * @param {GenerationInfo} info its limits
   * @param {ChatTemplate | null} template
   */
  constructor(engine, tokenizer, info, template) {
    this.info = info;
    this.#engine = engine;
    this.#tokenizer = tokenizer;
    this.#template = template;
  }

  /**
   * See `Model.tokenText`.
   *
   * @param {number} tokenId
   */
  tokenText(tokenId) {
    checkInt("tokenId", tokenId, 0, this.info.vocabSize - 1);
    return this.#tokenizer.tokenText?.(tokenId) ?? this.#tokenizer.decode([tokenId]);
  }

  /**
   * See `Model.chat`.
   *
   * @param {unknown} messages
   * @param {ChatArguments} chatOptions
   */
  chat(messages, chatOptions) {
    checkNames(chatOptions, CHAT_OPTIONS);
    const { tools, templateOptions, ...options } = chatOptions;
    const checked = checkMessages(messages);
    checkTemplateOptions(tools, templateOptions);
    if (this.#template === null) {
      throw new InvalidInput("the model has no chat template; use generate with a prompt");
    }
    const safe = guarded(checked, this.#tokenizer.controlTokens);
    const text = this.#template.render(safe.messages, { tools, variables: templateOptions });
    return this.generate(this.#tokenizer.encodeChat(text, safe.guard), options);
  }

  /**
   * See `Model.generate`.
   *
   * @param {unknown} prompt
   * @param {GenerateArguments} options
   */
  generate(prompt, options) {
    checkNames(options, GENERATE_OPTIONS);
    const checked = generateOptions(options, this.info);
    const engine = this.#engine;
    const scheduling = {
      traffic: checkTraffic(options.traffic ?? "latency"),
      deadlineNs: checkDeadline(options.deadlineMs, engine.nowNs()),
      ttftTargetNs: checkTarget("ttftTargetMs", options.ttftTargetMs),
      tpotTargetNs: checkTarget("tpotTargetMs", options.tpotTargetMs),
      tenant: checkText("tenant", options.tenant ?? ""),
      salt: checkText("cacheSalt", options.cacheSalt ?? ""),
    };
    const signal = checkSignal(options.signal);
    const ids = this.#ids(prompt);
    const own = checked.ignoreEos ? [] : this.info.eosTokenIds;
    const stopIds = [...new Set([...checked.stopTokenIds, ...own])].sort((a, b) => a - b);
    const decode = (/** @type {readonly number[]} */ tokens) => this.#tokenizer.decode(tokens);
    const call = { options: checked, stopIds, decode, ...scheduling };
    return new GenerationStream(engine, () => engine.generate(ids, call), signal);
  }

  /**
   * @param {unknown} prompt
   * @returns {readonly number[]}
   */
  #ids(prompt) {
    const { vocabSize, maxContext } = this.info;
    /** @type {number[]} */
    let ids;
    if (typeof prompt === "string") {
      ids = this.#tokenizer.encode(prompt);
    } else if (Array.isArray(prompt) || isTypedArray(prompt)) {
      ids = Array.from(/** @type {ArrayLike<number>} */ (prompt));
      const wrong = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
      if (wrong >= 0) {
        throw new InvalidInput(
          `prompt[${wrong}] is ${String(ids[wrong])}, the vocabulary has 0 to ${vocabSize - 1}`,
        );
      }
    } else {
      throw new InvalidType(
        `prompt is ${kindOf(prompt)}, expected a string or an array of token ids`,
      );
    }
    if (ids.length === 0) {
      throw new InvalidInput("the prompt has no tokens, expected at least one");
    }
    const maxTokens = maxContext - 1;
    if (ids.length > maxTokens) {
      throw new TooLong(
        `the prompt has ${ids.length} tokens, the context of ${maxContext} holds ${maxTokens} ` +
          "and a new one; shorten it",
        { numTokens: ids.length, maxTokens },
      );
    }
    return ids;
  }
}

/** @param {unknown} value */
const isTypedArray = (value) => ArrayBuffer.isView(value) && !(value instanceof DataView);
