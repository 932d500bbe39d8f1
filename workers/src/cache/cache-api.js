/** Copies in the browser's Cache API: pages, workers and service workers of one origin. */

/**
 * @param {string} [name] of the cache; `caches.delete(name)` frees all of it
 * @returns {import("./session.js").Cache | null} null where the host has no Cache API: it
 *   exists in secure contexts only
 */
export function cacheApi(name = "volery") {
  const base = globalThis.location?.origin;
  if (globalThis.caches === undefined || !base?.startsWith("http")) return null;
  // The API wants a URL as the key; nothing is ever fetched from it.
  const url = (/** @type {string} */ key) => new URL(`/.volery/${key}`, base).href;
  return {
    name: "the Cache API",
    async read(key) {
      const cache = await caches.open(name);
      return (await cache.match(url(key)))?.body ?? null;
    },
    async write(key, bytes) {
      const cache = await caches.open(name);
      const { readable, writable } = new TransformStream();
      const headers = { "content-length": String(bytes) };
      const kept = cache.put(url(key), new Response(readable, { headers }));
      const writer = writable.getWriter();
      // Whatever ends the copy also ends the streams; one of them is told to the caller.
      kept.catch((error) => writer.abort(error).catch(() => {}));
      writer.closed.catch(() => {});
      return new WritableStream({
        write: (chunk) => writer.write(chunk.slice()),
        async close() {
          await writer.close();
          await kept;
        },
        async abort(reason) {
          await writer.abort(reason);
          await kept.catch(() => {});
        },
      });
    },
    async remove(key) {
      const cache = await caches.open(name);
      await cache.delete(url(key));
    },
  };
}
