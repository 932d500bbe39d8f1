/**
 * Artifacts in the storage of Cloudflare Workers, as streams. Static assets are files below a
 * URL: `urlSource("https://assets.example/minilm/", { fetch: (...a) => env.ASSETS.fetch(...a) })`.
 */
import { ArtifactMissing } from "../errors.js";
import { chunksOf } from "./streams.js";

/** @typedef {import("./source.js").Source} Source */

/** @typedef {{get: (key: string) => Promise<{body: ReadableStream<Uint8Array>} | null>}} Bucket */

/**
 * @typedef {{get: (key: string, type: "stream") => Promise<ReadableStream<Uint8Array> | null>}}
 *   Namespace
 */

/**
 * Files in an R2 bucket.
 *
 * @param {Bucket} bucket the binding
 * @param {string} [prefix] of the keys, such as "minilm/"
 * @returns {Source}
 */
export function r2Source(bucket, prefix = "") {
  return stored("the R2 bucket", prefix, async (key) => (await bucket.get(key))?.body);
}

/**
 * Files in a KV namespace, whose values hold up to 25 MiB: a shard is smaller.
 *
 * @param {Namespace} namespace the binding
 * @param {string} [prefix] of the keys, such as "minilm/"
 * @returns {Source}
 */
export function kvSource(namespace, prefix = "") {
  return stored("the KV namespace", prefix, (key) => namespace.get(key, "stream"));
}

/**
 * @param {string} store for messages
 * @param {string} prefix
 * @param {(key: string) => Promise<ReadableStream<Uint8Array> | null | undefined>} get
 * @returns {Source}
 */
function stored(store, prefix, get) {
  return {
    location: `${store}, keys ${prefix}*`,
    rereadable: true,
    async *open(name) {
      const key = `${prefix}${name}`;
      const stream = await get(key);
      if (!stream) {
        throw new ArtifactMissing(`${store} has no ${key}; upload the artifact's files under it`);
      }
      yield* chunksOf(stream);
    },
  };
}
