/** The entry for Python in a page (Pyodide): what `runtime_py.load` imports and calls. */
import { createLoader } from "../hands.js";
import { webHost } from "../hosts/web.js";
import { Bridge } from "./bridge.js";
import { Words } from "./words.js";

/** @typedef {import("./bridge.js").Completed} Completed */

const PROGRAM = "program.bin";
const TOKENIZER = "tokenizer.json";

const loadModel = createLoader(webHost);

/**
 * Load an artifact and check it against its goldens.
 *
 * @param {string} source URL of the artifact's folder
 * @param {string} optionsJson `LoadOptions` of `hands.js` that are plain values
 * @param {Completed} completed called at the end of every step
 * @param {(loadedBytes: number, totalBytes: number) => void} [progress]
 * @returns {Promise<{bridge: Bridge, words: Words, program: Uint8Array}>}
 */
export async function open(source, optionsJson, completed, progress) {
  const model = await loadModel(source, {
    ...JSON.parse(optionsJson),
    files: filesOf,
    onProgress: progress ? (now) => progress(now.loadedBytes, now.totalBytes) : undefined,
  });
  try {
    const bytes = (/** @type {string} */ name) => /** @type {Uint8Array} */ (model.files.get(name));
    const { manifest } = model.info;
    const words = new Words(bytes(TOKENIZER), manifest, (name) =>
      new TextDecoder().decode(bytes(name)),
    );
    return { bridge: new Bridge(model, completed), words, program: bytes(PROGRAM) };
  } catch (error) {
    await model.close();
    throw error;
  }
}

/** @param {Record<string, any>} manifest */
function filesOf({ generation }) {
  const template = generation?.chat_template;
  return template ? [PROGRAM, TOKENIZER, template] : [PROGRAM, TOKENIZER];
}
