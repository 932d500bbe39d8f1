// The wasm file given by the caller in every way.
import { failureOf } from "./files.js";

export async function main({ volery, host }, { artifact, sequences }) {
  const url = new URL("../../../workers/wasm/volery-simd.wasm", import.meta.url);
  const { bytes } = await host.readFile(url);
  const module = await WebAssembly.compile(bytes);
  const results = {};
  for (const [name, given] of Object.entries({
    url: { url },
    folder: { url: new URL("./", url) },
    function: { url: (variant) => new URL(`./volery-${variant}.wasm`, url) },
    bytes: { bytes },
    module: { module },
  })) {
    const model = await volery.loadModel(artifact, { wasm: { variant: "simd", ...given } });
    await model.run(volery.packSequences(sequences));
    results[name] = model.info.variant;
    await model.close();
  }
  const load = (wasm) => failureOf(volery.loadModel(artifact, { wasm }));
  results.wrong = (await load({ variant: "relaxed", module })).name;
  results.page = (await load({ bytes: new TextEncoder().encode("<!doctype html>") })).name;
  return results;
}
