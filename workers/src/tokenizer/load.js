/** `tokenizer.json` as a tokenizer of the library, its mistakes corrected. */
import { parseJson } from "../artifact/manifest.js";
import { ArtifactCorrupt } from "../errors.js";
import { Tokenizer } from "./libraries.js";
import { repair } from "./repairs.js";

/** @typedef {import("./libraries.js").FastTokenizer} FastTokenizer */

/**
 * @param {Uint8Array} bytes content of the file
 * @returns {any} the document
 */
export function parseTokenizer(bytes) {
  return parseJson(bytes, "tokenizer.json");
}

/**
 * @param {any} json the document; its padding and truncation do not count
 * @returns {FastTokenizer}
 * @throws {ArtifactCorrupt} the library cannot load it
 */
export function loadTokenizer(json) {
  try {
    const tokenizer = new Tokenizer(json, {
      clean_up_tokenization_spaces: false,
      unk_token: json.model?.unk_token, // of a vocabulary of words, which the library looks for here
    });
    repair(tokenizer);
    return tokenizer;
  } catch (cause) {
    const [line] = String(cause).split("\n");
    throw new ArtifactCorrupt(
      `tokenizer.json cannot be loaded (${line.slice(0, 200)}); export the model again`,
      { cause },
    );
  }
}
