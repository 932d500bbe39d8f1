// Loads artifacts one after another, each with a cache of some kind; tells what each load said.
import { failureOf } from "./files.js";

/** A cache that is full after the first kilobyte. */
const full = {
  name: "the full cache",
  read: async () => null,
  write: async () => {
    let room = 1024;
    return new WritableStream({
      write(chunk) {
        room -= chunk.length;
        if (room < 0) throw new DOMException("no room", "QuotaExceededError");
      },
    });
  },
  remove: async () => {},
};

/** A cache that fails at everything. */
const fail = async () => {
  throw new DOMException("denied", "SecurityError");
};
const broken = { name: "the broken cache", read: fail, write: fail, remove: fail };

const kept = new Map();

function cacheOf(volery, { name, folder }) {
  switch (name) {
    case "full":
      return full;
    case "broken":
      return broken;
    case "files":
      return volery.fileCache(folder);
    case "opfs":
      return volery.opfsCache();
    case "cache-api":
      return volery.cacheApi("tests");
    case "default":
      return undefined;
    default:
      return volery.memoryCache();
  }
}

/** Put a byte too few, and wrong ones, where the cache has copies. */
async function damage(cache, keys) {
  let cut = 0;
  for (const key of keys) {
    const stream = await cache.read(key);
    if (!stream) throw new Error(`no copy of ${key}`);
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    bytes.fill(7, 0, 100);
    const writer = (await cache.write(key, bytes.length)).getWriter();
    await writer.write(bytes.subarray(cut));
    await writer.close();
    cut = 1 - cut;
  }
}

async function manifestOf(host, artifact) {
  const parts = [];
  for await (const chunk of host.source(artifact).open("manifest.json", {})) {
    parts.push(chunk.slice());
  }
  return JSON.parse(await new Blob(parts).text());
}

export async function main({ volery, host }, { loads, without = [] }) {
  for (const name of without) Object.defineProperty(globalThis, name, { value: undefined });
  const results = [];
  for (const { artifact, cache: asked, damage: damaged, options = {} } of loads) {
    const settings = { ...options };
    if (asked) {
      if (!kept.has(asked.name)) kept.set(asked.name, cacheOf(volery, asked));
      settings.cache = kept.get(asked.name);
      if (damaged) {
        const { files } = await manifestOf(host, artifact);
        const keys = new Set(Object.values(files).map((file) => file.sha256));
        await damage(settings.cache ?? volery.cacheApi(), keys);
      }
    }
    const loading = volery.loadModel(artifact, settings);
    const failure = await failureOf(loading);
    if (failure) {
      results.push({ failure });
      continue;
    }
    const model = await loading;
    await model.close();
    results.push({ warnings: model.info.warnings });
  }
  return results;
}
