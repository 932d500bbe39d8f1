/** The pool thread's script where workers are Web Workers (browsers, Deno). */
import { serve } from "./serve.js";

const scope = /** @type {Worker} */ (/** @type {unknown} */ (globalThis));
const post = (/** @type {unknown} */ message) => scope.postMessage(message);

scope.onmessage = (event) => serve(event.data, post);
// A shared memory that the host will not hand over arrives as this event.
scope.onmessageerror = () =>
  post({ type: "failed", message: "the shared memory could not be received" });
post({ type: "loaded" });
