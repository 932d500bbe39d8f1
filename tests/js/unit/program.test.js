import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeProgram } from "../../../workers/src/program/format.js";

/** A program of one slot, one tensor `w` F32 [4, 2] and no ops. */
function program() {
  const bytes = new Uint8Array(64 + 8 + 32 + 1);
  const view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode("VLRY"));
  view.setUint16(4, 1, true);
  [bytes.length, 1, 1, 0, 1, 0, 100, 512].forEach((v, i) => view.setUint32(8 + 4 * i, v, true));
  bytes[64] = 1;
  view.setUint32(68, 384, true);
  view.setUint16(76, 1, true);
  bytes[79] = 2;
  [4, 2, 1, 1].forEach((d, i) => view.setUint32(80 + 4 * i, d, true));
  bytes[bytes.length - 1] = 0x77;
  return bytes;
}

test("what the hands need of a program", () => {
  assert.deepEqual(decodeProgram(program()), {
    tensors: [{ name: "w", format: 0, shape: [4, 2] }],
    output: { rows: 1, width: 384 },
    isDecoder: false,
    numOps: 0,
    vocabSize: 100,
    maxPositions: 512,
  });
});

test("a program whose output has a row per wanted row is a decoder", () => {
  const bytes = program();
  bytes[64] = 2;
  assert.equal(decodeProgram(bytes).isDecoder, true);
  bytes[64] = 3;
  assert.throws(() => decodeProgram(bytes), { name: "ArtifactCorrupt", message: /row kind 3/ });
});

test("any truncation is corrupt", () => {
  const whole = program();
  for (let length = 0; length < whole.length; length++) {
    assert.throws(() => decodeProgram(whole.slice(0, length)), { name: "ArtifactCorrupt" });
  }
});

test("any flipped bit gives a program or a typed error", () => {
  const whole = program();
  for (let bit = 0; bit < 8 * whole.length; bit++) {
    const bytes = whole.slice();
    bytes[bit >> 3] ^= 1 << (bit & 7);
    try {
      decodeProgram(bytes);
    } catch (error) {
      assert.match(error.name, /^Artifact(Corrupt|Unsupported)$/, `bit ${bit}: ${error.stack}`);
    }
  }
});

test("a newer version and an unknown tensor format are unsupported", () => {
  const newer = program();
  newer[4] = 2;
  assert.throws(() => decodeProgram(newer), { name: "ArtifactUnsupported", message: /version 2/ });
  const format = program();
  format[78] = 99;
  assert.throws(() => decodeProgram(format), { name: "ArtifactUnsupported", message: /format 99/ });
});
