// Serves artifacts in workerd: node workerd.js NODE_MODULES_OF_WORKERD ARTIFACT...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const [tools, ...artifacts] = process.argv.slice(2);
const require = createRequire(`${tools}/`);
const { build } = require("esbuild");
const { Miniflare, Response } = require("miniflare");

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const wasm = new Set();
const plugin = {
  name: "wasm",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\.wasm$/ }, ({ path, resolveDir }) => {
      wasm.add(fileURLToPath(new URL(path, `file://${resolveDir}/`)));
      return { path: `./${path.split("/").at(-1)}`, external: true };
    }),
};
const { outputFiles } = await build({
  entryPoints: [here("worker.js")],
  bundle: true,
  write: false,
  format: "esm",
  target: "es2022",
  conditions: ["workerd", "worker", "browser"],
  plugins: [plugin],
  external: ["cloudflare:*"],
});
const folders = new Map(artifacts.map((folder) => [folder.split("/").at(-1), folder]));
const miniflare = new Miniflare({
  modules: [
    { type: "ESModule", path: "worker.js", contents: outputFiles[0].text },
    ...[...wasm].map((file) => ({
      type: "CompiledWasm",
      path: file.split("/").at(-1),
      contents: readFileSync(file),
    })),
  ],
  compatibilityDate: "2026-04-01",
  compatibilityFlags: ["enable_request_signal"],
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
