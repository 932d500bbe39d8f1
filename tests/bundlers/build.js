// Builds the application of a folder: `node build.js <bundler> <folder> <output>`.
import { cp } from "node:fs/promises";
import { join } from "node:path";

const [bundler, folder, output] = process.argv.slice(2);

const BUNDLERS = {
  /** No bundler: the package's own modules, found by the page's import map. */
  async plain() {
    await cp(folder, output, { recursive: true });
    const modules = join(folder, "..", "node_modules");
    await cp(modules, join(output, "node_modules"), { recursive: true, dereference: true });
  },

  async vite() {
    const { build } = await import("vite");
    await build({
      root: folder,
      base: "./",
      logLevel: "warn",
      worker: { format: "es" },
      build: {
        outDir: output,
        target: "es2022",
        rollupOptions: { input: join(folder, "vite.html") },
      },
    });
  },

  async webpack() {
    const { default: webpack } = await import("webpack");
    const compiler = webpack({
      mode: "production",
      context: folder,
      entry: "./main.js",
      output: { path: output },
      performance: false,
    });
    const stats = await new Promise((resolve, reject) =>
      compiler.run((error, done) => (error ? reject(error) : resolve(done))),
    );
    if (stats.hasErrors() || stats.hasWarnings())
      throw new Error(stats.toString("errors-warnings"));
  },

  async esbuild() {
    const { build } = await import("esbuild");
    await build({
      entryPoints: {
        main: join(folder, "main.esbuild.js"),
        background: join(folder, "background.js"),
        worker: "volery/worker",
      },
      absWorkingDir: folder,
      outdir: output,
      bundle: true,
      minify: true,
      format: "esm",
      target: "es2022",
      loader: { ".wasm": "file" },
      logLevel: "warning",
    });
  },

  /** The core alone, to weigh it: without the tokenizer libraries. */
  async core() {
    const { build } = await import("esbuild");
    await build({
      entryPoints: { core: "volery" },
      absWorkingDir: folder,
      outdir: output,
      bundle: true,
      minify: true,
      format: "esm",
      target: "es2022",
      external: ["@huggingface/*"],
      logLevel: "warning",
    });
  },
};

await BUNDLERS[bundler]();
