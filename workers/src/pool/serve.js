/** What a worker of a pool does: be a thread of a shared memory, or an instance of its own. */
import { serveInstance } from "./instance.js";
import { serveThread } from "./thread.js";

/**
 * @param {(message: unknown, transfer?: Transferable[]) => void} post
 * @returns {(message: any) => void} takes the pool's messages
 */
export function serveWorker(post) {
  const answer = serveInstance(post);
  return (message) => {
    if (message.type === "instance") return void answer(message);
    try {
      serveThread(message, post);
    } catch (error) {
      post({ type: "failed", message: String(error) });
    }
  };
}
