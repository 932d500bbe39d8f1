import assert from "node:assert/strict";
import { test } from "node:test";
import { urlSource } from "../../../workers/src/artifact/http.js";

const BASE = "https://example.org/m";
const html = { headers: { "content-type": "text/html; charset=utf-8" } };
const data = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);
const pause = async () => {};

const answer = (body, init) => async () => new Response(body, init);

/** A body that ends in an error after `bytes`, in chunks of 64. */
function broken(bytes, from = 0) {
  let at = from;
  return new ReadableStream({
    pull(controller) {
      if (at >= from + bytes) return controller.error(new TypeError("terminated"));
      const end = Math.min(at + 64, from + bytes);
      controller.enqueue(data.slice(at, end));
      at = end;
    },
  });
}

async function read(source, options = {}) {
  const parts = [];
  for await (const chunk of source.open("x", options)) parts.push(...chunk);
  return Uint8Array.from(parts);
}

/** A server that answers with each of `answers` in turn; `asked` has the headers of requests. */
function script(...answers) {
  const asked = [];
  const fetch = async (_, { headers }) => {
    asked.push(headers);
    const next = answers.shift();
    if (next === undefined) throw new TypeError("no more answers");
    if (next instanceof Error) throw next;
    return next;
  };
  return { asked, source: urlSource(BASE, { fetch, pause }) };
}

const tagged = (body, etag = '"v1"') => new Response(body, { headers: { etag } });
const rest = (from) => new Response(data.slice(from), { status: 206 });

test("a URL is a folder with or without its slash, and keeps its query", async () => {
  const asked = [];
  const fetch = async (url) => (asked.push(url), new Response("{}"));
  await read(urlSource("https://example.org/a/b", { fetch }));
  await read(urlSource("https://example.org/a/b/?token=1", { fetch }));
  assert.deepEqual(asked, ["https://example.org/a/b/x", "https://example.org/a/b/x?token=1"]);
});

test("M11: 404 is a missing file, named by URL, status and type", async () => {
  const fetch = answer("no", { status: 404, ...html });
  await assert.rejects(read(urlSource(BASE, { fetch })), {
    name: "ArtifactMissing",
    message: /https:\/\/example\.org\/m\/x answered HTTP 404 \(text\/html/,
  });
});

test("M11: a page instead of a file is named as one", async () => {
  const fetch = answer("<!doctype html>", html);
  await assert.rejects(read(urlSource(BASE, { fetch })), {
    name: "ArtifactCorrupt",
    message: /is an HTML page \(text\/html/,
  });
});

test("a dropped connection is resumed at once, guarded by the validator", async () => {
  const { asked, source } = script(tagged(broken(400)), rest(400));
  assert.deepEqual(await read(source), data);
  assert.deepEqual(asked, [{}, { range: "bytes=400-", "if-range": '"v1"' }]);
});

test("a weak validator is not sent", async () => {
  const { asked, source } = script(tagged(broken(64), 'W/"v1"'), rest(64));
  assert.deepEqual(await read(source), data);
  assert.deepEqual(asked[1], { range: "bytes=64-" });
});

test("many drops are resumed as long as each try brings bytes", async () => {
  const parts = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900];
  const { asked, source } = script(
    ...parts.map((at) => new Response(broken(100, at), { status: at ? 206 : 200 })),
  );
  assert.deepEqual(await read(source, { bytes: 1000 }), data);
  assert.equal(asked.length, parts.length);
});

test("a server that does not know ranges sends the front again, which is skipped", async () => {
  const { asked, source } = script(tagged(broken(400)), tagged(data));
  assert.deepEqual(await read(source), data);
  assert.equal(asked.length, 2);
});

test("tries that bring nothing are counted, with longer and longer pauses between", async () => {
  const cause = new TypeError("connection refused");
  const pauses = [];
  const fetch = async () => {
    throw cause;
  };
  const source = urlSource(BASE, { fetch, pause: async (ms) => void pauses.push(ms) });
  await assert.rejects(read(source), (error) => {
    assert.equal(error.name, "ArtifactMissing");
    assert.match(error.message, /could not be fetched in 4 tries \(connection refused\)/);
    return error.cause === cause;
  });
  assert.deepEqual(
    pauses,
    [...pauses].sort((a, b) => a - b),
  );
  assert.equal(pauses.length, 3);
});

test("a connection that never comes back is told with what was received", async () => {
  const gone = () => new TypeError("offline");
  const { source } = script(tagged(broken(400)), gone(), gone(), gone(), gone());
  await assert.rejects(read(source), {
    name: "ArtifactError",
    message: /broke off after 400 bytes and could not be resumed in 4 tries \(offline\)/,
  });
});

test("an overloaded server is asked again", async () => {
  const { source } = script(new Response("", { status: 503 }), tagged(data));
  assert.deepEqual(await read(source), data);
  const never = script(...Array.from({ length: 9 }, () => new Response("", { status: 503 })));
  await assert.rejects(read(never.source), { name: "ArtifactError", message: /HTTP 503/ });
  assert.equal(never.asked.length, 4);
});

test("leaving the loop cancels the body", async () => {
  let cancelled = false;
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(10)),
    cancel: () => void (cancelled = true),
  });
  const source = urlSource(BASE, { fetch: async () => new Response(body) });
  for await (const chunk of source.open("x", {})) {
    assert.equal(chunk.length, 10);
    break;
  }
  assert.ok(cancelled);
});
