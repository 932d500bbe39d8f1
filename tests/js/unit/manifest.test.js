import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "../../../workers/src/artifact/manifest.js";

const entry = { bytes: 3, sha256: "a".repeat(64) };
const shard = "weights-00001-of-00001.safetensors";
const valid = {
  format: "volery",
  format_version: 1,
  files: { "program.bin": entry, [shard]: entry },
};
const parse = (value) =>
  parseManifest(
    new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value)),
    "somewhere",
  );

test("a valid manifest", () => {
  assert.deepEqual(parse(valid).shards, [shard]);
});

const attacks = {
  "not JSON": "{",
  "not UTF-8 text": "\ud800",
  "an array": [],
  null: "null",
  "another format": { ...valid, format: "onnx" },
  "no files": { ...valid, files: undefined },
  "files as a list": { ...valid, files: [] },
  "a path": { ...valid, files: { ...valid.files, "../secret": entry } },
  "an absolute path": { ...valid, files: { ...valid.files, "/etc/passwd": entry } },
  "a URL": { ...valid, files: { ...valid.files, "https://elsewhere": entry } },
  "negative bytes": { ...valid, files: { [shard]: { ...entry, bytes: -1 } } },
  "fractional bytes": { ...valid, files: { [shard]: { ...entry, bytes: 1.5 } } },
  "a short hash": { ...valid, files: { [shard]: { ...entry, sha256: "ab" } } },
  "no weights": { ...valid, files: { "program.bin": entry } },
  "a missing shard": { ...valid, files: { "weights-00002-of-00002.safetensors": entry } },
};
for (const [what, value] of Object.entries(attacks)) {
  test(`refused: ${what}`, () => {
    assert.throws(() => parse(value), { name: "ArtifactCorrupt", message: /^[^\n]+$/ });
  });
}

test("a newer format version is unsupported, not corrupt", () => {
  assert.throws(() => parse({ ...valid, format_version: 2 }), {
    name: "ArtifactUnsupported",
    message: /format version 2/,
  });
});

test("M11: an HTML page is named as one", () => {
  assert.throws(() => parse("<!doctype html><title>App</title>"), {
    name: "ArtifactCorrupt",
    message: /HTML page.*check the URL/,
  });
});
