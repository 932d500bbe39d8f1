/** A model's chat template, rendered as transformers renders it. */
import { ArtifactCorrupt, InvalidInput } from "../errors.js";
import { Template } from "../tokenizer/libraries.js";
import { disguised } from "./whitespace.js";

/** `chat_template.jinja`, compiled. A template sees the names that it is given, and no more. */
export class ChatTemplate {
  #template;
  #names;

  /**
   * @param {string} source
   * @param {{bosToken?: string | null, eosToken?: string | null}} [tokens] texts that
   *   templates may name
   * @throws {ArtifactCorrupt} it is no Jinja template
   */
  constructor(source, { bosToken, eosToken } = {}) {
    this.#names = { bos_token: bosToken ?? "", eos_token: eosToken ?? "" };
    try {
      this.#template = new Template(source);
    } catch (cause) {
      throw new ArtifactCorrupt(
        `chat_template.jinja cannot be compiled (${firstLine(cause)}); export the model again`,
        { cause },
      );
    }
  }

  /**
   * The prompt's text.
   *
   * @param {readonly Record<string, unknown>[]} messages
   * @param {object} [options]
   * @param {boolean} [options.addGenerationPrompt] end with the start of the assistant's turn
   * @param {readonly unknown[]} [options.tools] for templates that describe tools
   * @param {Record<string, unknown>} [options.variables] more names for the template
   * @returns {string}
   * @throws {InvalidInput} the template refuses the messages, or fails on them
   */
  render(messages, { addGenerationPrompt = true, tools, variables } = {}) {
    try {
      // Which refuses what has no JSON, such as data that holds itself
      const { names, restore } = disguised({
        ...this.#names,
        ...variables,
        messages,
        add_generation_prompt: addGenerationPrompt,
        tools: tools ?? null,
      });
      return restore(this.#template.render(names));
    } catch (cause) {
      throw new InvalidInput(
        `the chat template refuses these messages (${firstLine(cause)}); ` +
          "check their roles and their order",
        { cause },
      );
    }
  }
}

/** @param {unknown} error */
function firstLine(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n")[0].slice(0, 200);
}
