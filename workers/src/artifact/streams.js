/** Streams of bytes as loops. */

/**
 * The chunks of a stream; leaving the loop early cancels it.
 *
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* chunksOf(stream) {
  // Not `for await (… of stream)`: Safari's streams are not async iterable.
  const reader = stream.getReader();
  let done = false;
  try {
    for (;;) {
      const part = await reader.read();
      if (part.done) {
        done = true;
        return;
      }
      yield part.value;
    }
  } finally {
    if (!done) await reader.cancel().catch(() => {});
  }
}

/**
 * One array of all chunks.
 *
 * @param {readonly Uint8Array[]} parts
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function concat(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/**
 * An iteration that begins now, before anybody asks: its first chunk is on its way.
 *
 * @implements {AsyncIterableIterator<Uint8Array>}
 */
export class Begun {
  #chunks;
  /** @type {Promise<IteratorResult<Uint8Array, void>> | null} */
  #first;

  /** @param {AsyncGenerator<Uint8Array, void, void>} chunks */
  constructor(chunks) {
    this.#chunks = chunks;
    this.#first = chunks.next();
    // It may never be asked for; whoever asks sees its error.
    this.#first.catch(() => {});
  }

  next() {
    const first = this.#first;
    this.#first = null;
    return first ?? this.#chunks.next();
  }

  return() {
    return this.#chunks.return();
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}
