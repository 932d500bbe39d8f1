/** The pool's script where workers are Web Workers (browsers, Deno). */
import { serveWorker } from "./serve.js";

const scope = /** @type {Worker} */ (/** @type {unknown} */ (globalThis));
const post = (/** @type {unknown} */ message, /** @type {Transferable[]} */ transfer = []) =>
  scope.postMessage(message, transfer);
const serve = serveWorker(post);

scope.onmessage = (event) => serve(event.data);
// A shared memory that the host will not hand over arrives as this event.
scope.onmessageerror = () =>
  post({ type: "failed", message: "the shared memory could not be received" });
post({ type: "loaded" });
