// Runs worker.js in workerd and answers requests, one JSON line each, from the standard input.
import { readFileSync, readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Miniflare, Response } from "miniflare";
import { modulesOf } from "./modules.js";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const [nodeModules, artifact, stores] = process.argv.slice(2);

/** Peak of the resident memory of our workerd process, in bytes. */
function peakBytes() {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim();
  const peaks = children.split(" ").flatMap((pid) => {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return /Name:\s+workerd/.test(status) ? [1024 * /VmHWM:\s+(\d+)/.exec(status)[1]] : [];
  });
  return Math.max(...peaks);
}

const files = readdirSync(artifact);
// Not a Buffer, which cannot cross into workerd.
const read = (name) => new Uint8Array(readFileSync(`${artifact}/${name}`));

const miniflare = new Miniflare({
  modules: await modulesOf(here("worker.js"), nodeModules),
  compatibilityDate: "2026-04-01",
  cf: false,
  kvNamespaces: ["KV"],
  r2Buckets: ["R2"],
  serviceBindings: {
    ASSETS(request) {
      const name = new URL(request.url).pathname.slice("/model/".length);
      return files.includes(name) ? new Response(read(name)) : new Response("", { status: 404 });
    },
  },
});

if (stores) {
  for (const store of [await miniflare.getKVNamespace("KV"), await miniflare.getR2Bucket("R2")]) {
    for (const name of files) await store.put(`model/${name}`, read(name));
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const requests = JSON.parse(line);
  const answers = requests.map(async ([path, body, leaves]) => {
    const caller = new AbortController();
    const init = { method: "POST", body: JSON.stringify(body), signal: caller.signal };
    const asked = miniflare.dispatchFetch(`http://worker${path}`, init);
    if (leaves) {
      setImmediate(() => caller.abort());
      return asked.then(
        () => ({ result: null }),
        () => ({ result: null }),
      );
    }
    const response = await asked;
    const text = await response.text();
    return response.ok ? { result: JSON.parse(text) } : { error: text };
  });
  console.log(JSON.stringify({ answers: await Promise.all(answers), peak: peakBytes() }));
}
await miniflare.dispose();
