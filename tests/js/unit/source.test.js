import assert from "node:assert/strict";
import { test } from "node:test";
import { ArtifactReader } from "../../../workers/src/artifact/reader.js";
import { mapSource, toSource, urlSource } from "../../../workers/src/artifact/source.js";

const answer = (body, init) => async () => new Response(body, init);
const html = { headers: { "content-type": "text/html; charset=utf-8" } };

async function read(source, name = "manifest.json", options = {}) {
  let size = 0;
  for await (const chunk of source.open(name, options)) size += chunk.length;
  return size;
}

test("a URL is a folder with or without its slash, and keeps its query", async () => {
  const asked = [];
  const fetch = async (url) => (asked.push(url), new Response("{}"));
  await read(urlSource("https://example.org/a/b", { fetch }));
  await read(urlSource("https://example.org/a/b/?token=1", { fetch }));
  assert.deepEqual(asked, [
    "https://example.org/a/b/manifest.json",
    "https://example.org/a/b/manifest.json?token=1",
  ]);
});

test("M11: 404 is a missing file, named by URL, status and type", async () => {
  const fetch = answer("no", { status: 404, ...html });
  await assert.rejects(read(urlSource("https://example.org/m", { fetch })), {
    name: "ArtifactMissing",
    message: /https:\/\/example\.org\/m\/manifest\.json answered HTTP 404 \(text\/html/,
  });
});

test("M11: a page instead of a file is named as one", async () => {
  const fetch = answer("<!doctype html>", html);
  await assert.rejects(read(urlSource("https://example.org/m", { fetch })), {
    name: "ArtifactCorrupt",
    message: /is an HTML page \(text\/html/,
  });
});

test("a network failure is typed and keeps its cause", async () => {
  const cause = new TypeError("connection refused");
  const fetch = async () => {
    throw cause;
  };
  await assert.rejects(read(urlSource("https://example.org/m", { fetch })), (error) => {
    assert.equal(error.name, "ArtifactMissing");
    assert.match(error.message, /connection refused/);
    return error.cause === cause;
  });
});

test("leaving the loop cancels the body", async () => {
  let cancelled = false;
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(10)),
    cancel: () => void (cancelled = true),
  });
  const source = urlSource("https://example.org/m", { fetch: async () => new Response(body) });
  for await (const chunk of source.open("x", {})) {
    assert.equal(chunk.length, 10);
    break;
  }
  assert.ok(cancelled);
});

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
  await assert.rejects(ArtifactReader.open(endless, { signal: abort.signal }), (error) => {
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
  await assert.rejects(ArtifactReader.open(endless, {}), { name: "ArtifactCorrupt" });
});
