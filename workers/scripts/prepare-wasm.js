// Copies the wasm builds of `toolchain build` into the package, which carries them.
import { copyFile, mkdir, readdir } from "node:fs/promises";

const built = new URL("../../runtime_py/_wasm/", import.meta.url);
const target = new URL("../wasm/", import.meta.url);

const names = (await readdir(built).catch(() => [])).filter((name) =>
  /^volery-(simd|relaxed)(-threads)?\.wasm$/.test(name),
);
if (names.length !== 4) {
  console.error(
    `runtime_py/_wasm holds ${names.length} of the 4 wasm builds; run \`toolchain build\` first`,
  );
  process.exit(1);
}
await mkdir(target, { recursive: true });
for (const name of names) await copyFile(new URL(name, built), new URL(name, target));
