// Serves artifacts in workerd: node workerd.js FOLDER_OF_MODULES_JS ARTIFACT... [--no-request-signal]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

const [tools, ...rest] = process.argv.slice(2);
const artifacts = rest.filter((word) => !word.startsWith("--"));
const hasSignal = !rest.includes("--no-request-signal");
const { Miniflare, Response } = createRequire(`${tools}/`)("miniflare");
const { modulesOf } = await import(pathToFileURL(`${tools}/modules.js`));
const folders = new Map(artifacts.map((folder) => [folder.split("/").at(-1), folder]));
const miniflare = new Miniflare({
  modules: await modulesOf(fileURLToPath(new URL("worker.js", import.meta.url))),
  compatibilityDate: "2026-04-01",
  compatibilityFlags: hasSignal ? ["enable_request_signal"] : [],
  cf: false,
  host: "127.0.0.1",
  port: 0,
  bindings: { MODELS: [...folders.keys()].join() },
  serviceBindings: {
    ASSETS(request) {
      const [, model, name] = new URL(request.url).pathname.split("/");
      // Not a Buffer, which cannot cross into workerd.
      return new Response(new Uint8Array(readFileSync(`${folders.get(model)}/${name}`)));
    },
  },
});
console.log(`workerd at ${(await miniflare.ready).origin}`);
