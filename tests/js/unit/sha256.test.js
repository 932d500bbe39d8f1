import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Sha256 } from "../../../workers/src/artifact/sha256.js";
import { wasmHash } from "../../../workers/src/wasm/hasher.js";

const builds = new URL("../../../runtime_py/_wasm/", import.meta.url);
const bytes = Uint8Array.from({ length: 700_000 }, (_, i) => (i * 167 + (i >> 3)) & 255);
const expected = (data) => createHash("sha256").update(data).digest("hex");

const inWasm = async (variant) =>
  wasmHash(
    await WebAssembly.compile(readFileSync(new URL(`volery-${variant}.wasm`, builds))),
    variant,
  );
const KINDS = {
  JavaScript: async () => () => new Sha256(),
  WebAssembly: () => inWasm("simd"),
  "WebAssembly with shared memory": () => inWasm("simd-threads"),
};

for (const [kind, create] of Object.entries(KINDS)) {
  test(`${kind}: every length around the block and padding boundaries`, async () => {
    const hashOf = await create();
    for (let length = 0; length <= 200; length++) {
      const hash = hashOf();
      hash.update(bytes.subarray(0, length));
      assert.equal(hash.hex(), expected(bytes.subarray(0, length)));
    }
  });

  test(`${kind}: chunks of any size give the same digest`, async () => {
    const hashOf = await create();
    for (const step of [61, 64, 65, 1000, 65_537, 300_000, 700_000]) {
      const hash = hashOf();
      for (let at = 0; at < bytes.length; at += step) hash.update(bytes.subarray(at, at + step));
      assert.equal(hash.hex(), expected(bytes));
    }
  });

  test(`${kind}: several files are hashed by turns`, async () => {
    const hashOf = await create();
    const hashes = [1, 2, 3].map(() => hashOf());
    for (let at = 0; at < 900; at += 90) {
      hashes.forEach((hash, i) => hash.update(bytes.subarray(at + i, at + i + 90)));
    }
    hashes.forEach((hash, i) => assert.equal(hash.hex(), expected(bytes.subarray(i, i + 900))));
  });
}
