/** Bulk work for an embedding model: the corpus again and again, in the throughput class. */

/** Texts in flight: enough to fill the steps, few enough to stop at once. */
const WINDOW = 64;

/**
 * Embed `passages` over and over until `signal` fires.
 *
 * @param {import("./page.js").Model} model
 * @param {readonly string[]} passages
 * @param {AbortSignal} signal
 * @param {(count: number) => void} [onCount] told now and then how many are done
 */
export async function embedAgainAndAgain(model, passages, signal, onCount) {
  let count = 0;
  const options = /** @type {const} */ ({ traffic: "throughput", window: WINDOW, signal });
  try {
    for await (const _ of model.embedStream(repeated(passages), options)) {
      count += 1;
      if (count % WINDOW === 0) onCount?.(count);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  return count;
}

/** @param {readonly string[]} passages */
function* repeated(passages) {
  for (;;) yield* passages;
}
