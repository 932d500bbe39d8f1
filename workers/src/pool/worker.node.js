/** The pool thread's script in Node. */
import { parentPort } from "node:worker_threads";
import { serve } from "./serve.js";

if (parentPort === null) throw new Error("worker.node.js runs as a worker thread");
const port = parentPort;
const post = (/** @type {unknown} */ message) => port.postMessage(message);

port.once("message", (task) => serve(task, post));
port.once("messageerror", (error) => post({ type: "failed", message: String(error) }));
post({ type: "loaded" });
