/** Server-sent events. */
import { HttpError } from "./errors.js";

const DONE = "[DONE]";

/**
 * Values as events, the last followed by `[DONE]`. After a failure there is an event that tells
 * it and no `[DONE]`, for the answer is not complete.
 *
 * @param {AsyncIterator<unknown>} values
 * @param {object} handlers
 * @param {(error: unknown) => unknown} handlers.failure what is told of an error
 * @param {() => void} handlers.close the reader went away; ends `values`, also one that is waited
 *   for
 * @param {(error: unknown) => void} handlers.ended called once, with undefined or what went wrong
 * @returns {Response}
 */
export function eventStream(values, { failure, close, ended }) {
  const encoder = new TextEncoder();
  let isOver = false;
  const over = (/** @type {unknown} */ error) => {
    isOver = true;
    ended(error);
  };
  const event = (/** @type {string} */ data) => encoder.encode(`data: ${data}\n\n`);
  const body = new ReadableStream(
    {
      async pull(controller) {
        try {
          const { done, value } = await values.next();
          if (!done && !isOver) {
            controller.enqueue(event(JSON.stringify(value)));
            return;
          }
          if (isOver) return;
          controller.enqueue(event(DONE));
          over(undefined);
        } catch (error) {
          if (isOver) return;
          controller.enqueue(event(JSON.stringify(failure(error))));
          over(error);
        }
        controller.close();
      },
      cancel() {
        over(new HttpError(499, "client_closed_request", "the client closed the connection"));
        close();
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no", // proxies would hold events back
    },
  });
}
