import assert from "node:assert/strict";
import { test } from "node:test";
import { ArtifactReader } from "../../../workers/src/artifact/reader.js";
import { mapSource, toSource } from "../../../workers/src/artifact/source.js";

async function read(source, name) {
  let size = 0;
  for await (const chunk of source.open(name, {})) size += chunk.length;
  return size;
}

test("bytes by name, as an object, a Map, or any object with open", async () => {
  const data = new Uint8Array(5);
  const strings = () => assert.fail("not a string");
  assert.equal(await read(toSource({ x: data }, strings), "x"), 5);
  assert.equal(await read(toSource(new Map([["x", data.buffer]]), strings), "x"), 5);
  const own = mapSource({ x: data });
  assert.equal(toSource(own, strings), own);
  await assert.rejects(read(own, "y"), { name: "ArtifactMissing", message: /^y is missing/ });
  for (const bad of [null, undefined, 7, {}, { x: "text" }, []]) {
    assert.throws(() => toSource(bad, strings), { name: "InvalidInput" });
  }
});

test("an abort between chunks stops a source that does not listen", async () => {
  const abort = new AbortController();
  const endless = {
    location: "endless",
    async *open() {
      for (;;) yield new Uint8Array(1);
    },
  };
  abort.abort(new Error("changed my mind"));
  await assert.rejects(new ArtifactReader(endless, { signal: abort.signal }).open(), (error) => {
    return error.name === "Aborted" && error.cause.message === "changed my mind";
  });
});

test("a manifest without end is refused at its limit", async () => {
  const endless = {
    location: "endless",
    async *open() {
      for (;;) yield new Uint8Array(4 << 20);
    },
  };
  await assert.rejects(new ArtifactReader(endless, {}).open(), { name: "ArtifactCorrupt" });
});
