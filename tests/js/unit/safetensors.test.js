import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderReader } from "../../../workers/src/artifact/safetensors.js";

/** A shard with the given header (an object, or raw text) and data size. */
function shard(header, dataBytes, announced) {
  const text = new TextEncoder().encode(
    typeof header === "string" ? header : JSON.stringify(header),
  );
  const bytes = new Uint8Array(8 + text.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(announced ?? text.length), true);
  bytes.set(text, 8);
  return bytes;
}

function read(bytes, step = bytes.length) {
  const reader = new HeaderReader("s.safetensors", bytes.length);
  for (let at = 0; at < bytes.length;) {
    const { used, entries } = reader.push(bytes.subarray(at, at + step));
    at += used;
    if (entries !== null) return { at, entries };
    assert.ok(used > 0);
  }
  return null;
}

const a = { dtype: "F16", shape: [2, 3], data_offsets: [4, 16] };
const b = { dtype: "U8", shape: [4], data_offsets: [0, 4] };

test("entries come in the order of their data, however the header is cut", () => {
  const bytes = shard({ __metadata__: { x: "y" }, a, b }, 16);
  for (let step = 1; step <= bytes.length; step++) {
    const { at, entries } = read(bytes, step);
    assert.equal(at, bytes.length - 16);
    assert.deepEqual(
      entries.map((e) => e.name),
      ["b", "a"],
    );
  }
});

const attacks = {
  "a header longer than the file": shard({ b }, 4, 1 << 20),
  "a header of 2^63 bytes": shard({ b }, 4, 2n ** 63n),
  "an empty header": shard("", 4),
  "not JSON": shard("{]", 4),
  "a list": shard("[]", 0),
  "an entry that is no object": shard({ b: 1 }, 4),
  "an unknown dtype": shard({ b: { ...b, dtype: "F64" } }, 4),
  "no shape": shard({ b: { ...b, shape: 4 } }, 4),
  "a negative dimension": shard({ b: { ...b, shape: [-4] } }, 4),
  "a fractional dimension": shard({ b: { ...b, shape: [4.5] } }, 4),
  "a product beyond 2^53": shard({ b: { ...b, shape: [2 ** 40, 2 ** 40] } }, 4),
  "offsets that run backwards": shard({ b: { ...b, data_offsets: [4, 0] } }, 4),
  "offsets past the end": shard({ b: { ...b, data_offsets: [4, 8] } }, 4),
  "overlapping tensors": shard({ b, c: b }, 4),
  "a hole": shard({ b, a: { ...a, data_offsets: [6, 18] } }, 18),
  "data that no tensor covers": shard({ b }, 5),
  "data that is missing": shard({ b }, 3),
};
for (const [what, bytes] of Object.entries(attacks)) {
  test(`refused: ${what}`, () => {
    assert.throws(() => read(bytes), { name: "ArtifactCorrupt", message: /^[^\n]+$/ });
  });
}

test("a shard cut inside its header never yields entries", () => {
  const bytes = shard({ b }, 4);
  const reader = new HeaderReader("s.safetensors", bytes.length);
  assert.equal(reader.push(bytes.subarray(0, 12)).entries, null);
});
