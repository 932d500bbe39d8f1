/** Python in this page's main thread, or in a worker of it. */
import { startPython } from "./python.js";

export async function start(inWorker, wheel) {
  const url = new URL(wheel, location.origin).href;
  if (!inWorker) {
    const { loadPyodide } = await import("/pyodide/pyodide.mjs");
    globalThis.runPython = await startPython(loadPyodide, "/pyodide/", url);
    return;
  }
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const ask = (message) =>
    new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = (event) => reject(new Error(event.message));
      worker.postMessage(message);
    });
  await ask({ wheel: url });
  globalThis.runPython = (code) => ask({ code });
}
