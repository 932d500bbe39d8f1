/** Tokenizers and chat templates for Python in a page, which has no packages for them. */
import { ChatTemplate } from "../chat/template.js";
import { HFTokenizer } from "../embedding/tokenizer.js";
import { HFTextTokenizer } from "../generation/tokenizer.js";

export class Words {
  #embedding;
  #text;
  #readFile;
  #generation;
  /** @type {ChatTemplate | null} compiled when it is first needed */
  #template = null;

  /**
   * @param {Uint8Array} tokenizer content of `tokenizer.json`
   * @param {Record<string, any>} manifest
   * @param {(name: string) => string} readFile
   */
  constructor(tokenizer, { generation, limits }, readFile) {
    this.#generation = generation;
    this.#readFile = readFile;
    this.#embedding = generation ? null : new HFTokenizer(tokenizer, limits.max_tokens);
    this.#text = generation ? new HFTextTokenizer(tokenizer) : null;
  }

  /**
   * Tokenize texts to embed.
   *
   * @param {string} textsJson an array of strings
   * @returns {Int32Array} per text the number of its ids and of its tokens before they were
   *   cut, then the ids of all
   */
  encodeTexts(textsJson) {
    const tokenizer = /** @type {HFTokenizer} */ (this.#embedding);
    const texts = /** @type {string[]} */ (JSON.parse(textsJson));
    const encoded = texts.map((text, i) => tokenizer.encode(text, `texts[${i}]`));
    const total = encoded.reduce((sum, { ids }) => sum + ids.length, 2 * texts.length);
    const flat = new Int32Array(total);
    let at = 2 * texts.length;
    encoded.forEach(({ ids, numTokens }, i) => {
      flat[2 * i] = ids.length;
      flat[2 * i + 1] = numTokens;
      flat.set(ids, at);
      at += ids.length;
    });
    return flat;
  }

  /** @param {string} prompt */
  promptLength(prompt) {
    return /** @type {HFTokenizer} */ (this.#embedding).promptLength(prompt);
  }

  /** JSON of the control tokens, longest first. */
  controlTokens() {
    return JSON.stringify(/** @type {HFTextTokenizer} */ (this.#text).controlTokens);
  }

  /** @param {string} textJson a string @returns {Int32Array} */
  encode(textJson) {
    const tokenizer = /** @type {HFTextTokenizer} */ (this.#text);
    return Int32Array.from(tokenizer.encode(JSON.parse(textJson)));
  }

  /** @param {string} textJson a string @param {string} guard @returns {Int32Array} */
  encodeChat(textJson, guard) {
    const tokenizer = /** @type {HFTextTokenizer} */ (this.#text);
    return Int32Array.from(tokenizer.encodeChat(JSON.parse(textJson), guard));
  }

  /** @param {Int32Array} ids @returns {string} */
  decode(ids) {
    return /** @type {HFTextTokenizer} */ (this.#text).decode(Array.from(ids));
  }

  /** Compile the chat template. */
  compileTemplate() {
    const { bos_token: bosToken, eos_token: eosToken, chat_template: file } = this.#generation;
    this.#template = new ChatTemplate(this.#readFile(file), { bosToken, eosToken });
  }

  /**
   * The prompt of a chat.
   *
   * @param {string} messagesJson
   * @param {string} optionsJson `addGenerationPrompt`, `tools`, `variables`
   * @returns {string}
   */
  render(messagesJson, optionsJson) {
    const template = /** @type {ChatTemplate} */ (this.#template);
    const { tools, ...options } = JSON.parse(optionsJson);
    return template.render(JSON.parse(messagesJson), { ...options, tools: tools ?? undefined });
  }
}
