/** Python in a worker. */
import { loadPyodide } from "/pyodide/pyodide.mjs";
import { startPython } from "./python.js";

let runPython;

globalThis.onmessage = async ({ data: { wheel, code } }) => {
  if (wheel) runPython = await startPython(loadPyodide, "/pyodide/", wheel);
  globalThis.postMessage(wheel ? "ready" : await runPython(code));
};
