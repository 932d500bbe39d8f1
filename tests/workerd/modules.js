// A Worker as workerd takes it: one module, and the wasm files that it imports.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** Modules for Miniflare of the script `entry`, whose packages also lie in `nodeModules`. */
export async function modulesOf(entry, nodeModules) {
  const wasm = new Set();
  const plugin = {
    name: "wasm",
    setup: ({ onResolve }) =>
      onResolve({ filter: /\.wasm$/ }, ({ path, resolveDir }) => {
        const file = fileURLToPath(new URL(path, `file://${resolveDir}/`));
        wasm.add(file);
        return { path: `./${file.split("/").at(-1)}`, external: true };
      }),
  };
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    nodePaths: nodeModules ? [nodeModules] : [],
    plugins: [plugin],
    external: ["cloudflare:*"],
  });
  return [
    { type: "ESModule", path: "worker.js", contents: outputFiles[0].text },
    ...[...wasm].map((file) => ({
      type: "CompiledWasm",
      path: file.split("/").at(-1),
      contents: readFileSync(file),
    })),
  ];
}
