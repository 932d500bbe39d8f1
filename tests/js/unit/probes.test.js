import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import {
  canPostSharedMemory,
  hasAtomics,
  hasExactRelaxedDot,
  hasSimd,
} from "../../../workers/src/wasm/probes.js";
import { chooseVariant, loadModule } from "../../../workers/src/wasm/variants.js";

const originals = Object.fromEntries(
  ["SharedArrayBuffer", "MessageChannel", "crossOriginIsolated"].map((name) => [
    name,
    Object.getOwnPropertyDescriptor(globalThis, name),
  ]),
);
const replace = (name, value) =>
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
afterEach(() => {
  for (const [name, descriptor] of Object.entries(originals)) {
    if (descriptor) Object.defineProperty(globalThis, name, descriptor);
    else delete globalThis[name];
  }
});

const major = Number(process.versions.node.split(".")[0]);

test("features are found by trying", async () => {
  assert.ok(hasSimd());
  assert.ok(hasAtomics());
  assert.equal(hasExactRelaxedDot(), major >= 22);
  assert.ok(await canPostSharedMemory());
});

test("the best build for what there is", () => {
  const best = major >= 22 ? "relaxed" : "simd";
  assert.equal(chooseVariant(false, {}), best);
  assert.equal(chooseVariant(true, {}), `${best}-threads`);
  assert.equal(chooseVariant(true, { variant: "simd" }), "simd-threads");
  assert.equal(chooseVariant(false, { variant: "relaxed-threads" }), "relaxed");
  assert.throws(() => chooseVariant(false, { variant: "avx" }), { name: "InvalidInput" });
});

test("M5: no SharedArrayBuffer, no isolation", async () => {
  replace("SharedArrayBuffer", undefined);
  assert.equal(await canPostSharedMemory(), false);
});

test("M5: a page that is not cross-origin isolated", async () => {
  replace("crossOriginIsolated", false);
  assert.equal(await canPostSharedMemory(), false);
});

test("M5: a SharedArrayBuffer that exists but cannot be posted", async () => {
  class Unpostable extends MessageChannel {
    constructor() {
      super();
      this.port1.postMessage = () => {
        throw new DOMException("could not be cloned", "DataCloneError");
      };
    }
  }
  replace("MessageChannel", Unpostable);
  assert.equal(await canPostSharedMemory(), false);
});

test("M11: a page instead of the wasm file is named with its URL and type", async () => {
  const read = async () => ({
    bytes: new TextEncoder().encode("<!doctype html>"),
    type: "text/html",
  });
  await assert.rejects(loadModule("simd", { url: "https://example.org/v.wasm" }, read), {
    name: "ArtifactCorrupt",
    message: /https:\/\/example\.org\/v\.wasm \(text\/html\) is not a WebAssembly file/,
  });
});
