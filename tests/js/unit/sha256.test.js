import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { Sha256 } from "../../../workers/src/artifact/sha256.js";

const bytes = Uint8Array.from({ length: 5000 }, (_, i) => (i * 167 + (i >> 3)) & 255);
const expected = (data) => createHash("sha256").update(data).digest("hex");

test("every length around the block and padding boundaries", () => {
  for (let length = 0; length <= 200; length++) {
    const hash = new Sha256();
    hash.update(bytes.subarray(0, length));
    assert.equal(hash.hex(), expected(bytes.subarray(0, length)));
  }
});

test("chunks of any size give the same digest", () => {
  for (const step of [1, 3, 63, 64, 65, 127, 128, 1000]) {
    const hash = new Sha256();
    for (let at = 0; at < bytes.length; at += step) hash.update(bytes.subarray(at, at + step));
    assert.equal(hash.hex(), expected(bytes));
  }
});
