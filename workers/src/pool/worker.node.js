/** The pool's script in Node. */
import { parentPort } from "node:worker_threads";
import { serveWorker } from "./serve.js";

if (parentPort === null) throw new Error("worker.node.js runs as a worker thread");
const port = parentPort;
const post = (/** @type {unknown} */ message, /** @type {any[]} */ transfer = []) =>
  port.postMessage(message, transfer);

port.on("message", serveWorker(post));
port.on("messageerror", (error) => post({ type: "failed", message: String(error) }));
post({ type: "loaded" });
