/** Starts Pyodide with Volery's wheel, and runs programs in it. */
import { threadsHere } from "../shared/page.js";

const at = (/** @type {string} */ path) => new URL(`../../${path}`, import.meta.url).href;
const PYODIDE = at("pyodide/");
const WHEEL = at("dist/volery-0.1.0-py3-none-any.whl");

/**
 * @typedef {object} Python
 * @property {string} version
 * @property {(code: string) => Promise<string>} run the text of what went wrong, or ""
 * @property {() => void} stop end the program that runs
 */

/**
 * @param {object} page
 * @param {(line: string) => void} page.print takes what programs print
 * @param {(model: {stats: () => any, info: {threads: number}}) => void} page.watch takes the
 *   model whose scheduler is to be shown
 * @returns {Promise<Python>}
 */
export async function startPython({ print, watch }) {
  await mustExist(`${PYODIDE}pyodide.mjs`, "Pyodide is not installed: run “npm ci” in demo/.");
  await mustExist(WHEEL, "The wheel is not built: run “make wheel”.");
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL: PYODIDE });
  pyodide.setStdout({ batched: print });
  pyodide.setStderr({ batched: print });
  await pyodide.loadPackage(WHEEL, { messageCallback: () => {} });
  pyodide.registerJsModule("volery_page", { watch, threads: threadsHere() });
  const source = await (await fetch(new URL("./page.py", import.meta.url))).text();
  pyodide.FS.writeFile("page.py", source);
  const page = pyodide.pyimport("page");
  return { version: page.VERSION, run: (code) => page.run(code), stop: () => page.stop() };
}

/** @param {string} url @param {string} otherwise what to do when it is not there */
async function mustExist(url, otherwise) {
  if (!(await fetch(url, { method: "HEAD" })).ok) throw new Error(`${otherwise} Then reload.`);
}
