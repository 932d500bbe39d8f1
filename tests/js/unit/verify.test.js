import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { parseManifest, PIECE_BYTES } from "../../../workers/src/artifact/manifest.js";
import { piecesOf, verified, verifiedPieces } from "../../../workers/src/artifact/verify.js";

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const subtle = (data) => crypto.subtle.digest("SHA-256", data);

function contentOf(bytes) {
  const data = new Uint8Array(bytes);
  for (let i = 0; i < bytes; i += 997) data[i] = i % 251;
  return data;
}

function entryOf(data) {
  const pieces = [];
  for (let at = 0; at < data.length; at += PIECE_BYTES) {
    pieces.push(sha256(data.subarray(at, at + PIECE_BYTES)));
  }
  return { bytes: data.length, sha256: sha256(data), pieces };
}

/** One buffer for all chunks, as a source may have it. */
async function* chunksOf(data, size) {
  const buffer = new Uint8Array(size);
  for (let at = 0; at < data.length; at += size) {
    const part = data.subarray(at, at + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

async function collect(chunks, into = []) {
  for await (const chunk of chunks) into.push(Buffer.from(chunk));
  return Buffer.concat(into);
}

const byPieces = (chunks, entry, digest = subtle) =>
  verifiedPieces("file", chunks, entry, piecesOf(entry), digest);

test("a file comes out as it went in, whatever its chunks", async () => {
  for (const bytes of [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 6 * PIECE_BYTES + 5]) {
    const data = contentOf(bytes);
    const entry = entryOf(data);
    for (const size of [65536, 100_003, PIECE_BYTES, 3 * PIECE_BYTES + 7]) {
      assert.ok((await collect(byPieces(chunksOf(data, size), entry))).equals(data));
      const hash = createHash("sha256");
      const incremental = {
        update: (chunk) => void hash.update(chunk),
        hex: () => hash.digest("hex"),
      };
      const streamed = verified("file", chunksOf(data, size), entry, incremental);
      assert.ok((await collect(streamed)).equals(data));
    }
  }
});

test("nothing of a wrong piece is passed on", async () => {
  const data = contentOf(5 * PIECE_BYTES + 9);
  const entry = entryOf(data);
  for (const at of [0, PIECE_BYTES - 1, 2 * PIECE_BYTES, data.length - 1]) {
    const wrong = data.slice();
    wrong[at] ^= 1;
    const passed = [];
    const from = at - (at % PIECE_BYTES);
    const to = Math.min(from + PIECE_BYTES, data.length);
    await assert.rejects(collect(byPieces(chunksOf(wrong, 70_000), entry), passed), {
      name: "ArtifactCorrupt",
      message: new RegExp(`^file from byte ${from} to ${to} has sha256 `),
    });
    assert.equal(Buffer.concat(passed).length, from);
  }
});

test("lengths are checked like those of a file whose whole is hashed", async () => {
  const data = contentOf(2 * PIECE_BYTES);
  const entry = entryOf(data);
  await assert.rejects(collect(byPieces(chunksOf(contentOf(2 * PIECE_BYTES + 1), 65536), entry)), {
    message: /^file has more than the 2097152 bytes of manifest.json/,
  });
  await assert.rejects(collect(byPieces(chunksOf(data.subarray(1), 65536), entry)), {
    message: /^file ends after 2097151 bytes, manifest.json says 2097152/,
  });
});

test("a digest that fails is the read's failure, and few run at once", async () => {
  const data = contentOf(9 * PIECE_BYTES);
  let running = 0;
  let most = 0;
  const counted = async (piece) => {
    most = Math.max(most, ++running);
    await null;
    const digest = await subtle(piece);
    running -= 1;
    return digest;
  };
  await collect(byPieces(chunksOf(data, 65536), entryOf(data), counted));
  assert.ok(most > 1 && most <= 4, `${most} at once`);
  const failing = async () => {
    throw new Error("no memory");
  };
  await assert.rejects(collect(byPieces(chunksOf(data, 65536), entryOf(data), failing)), {
    message: "no memory",
  });
});

test("a file without pieces is one piece, unless it is longer than that", () => {
  const entry = { bytes: PIECE_BYTES, sha256: sha256("x") };
  assert.deepEqual(piecesOf(entry), [entry.sha256]);
  assert.equal(piecesOf({ ...entry, bytes: PIECE_BYTES + 1 }), null);
});

test("a manifest with wrong pieces is refused", () => {
  const name = "weights-00001-of-00001.safetensors";
  const entry = entryOf(contentOf(2 * PIECE_BYTES + 1));
  const parsed = (pieces) =>
    parseManifest(
      new TextEncoder().encode(
        JSON.stringify({
          format: "volery",
          format_version: 1,
          files: { [name]: { ...entry, pieces } },
        }),
      ),
      "here",
    );
  assert.equal(parsed(entry.pieces).files[name].pieces.length, 3);
  const two = entry.pieces.slice(1);
  for (const bad of [[], two, [...two, "abc"], [...two, 7], "abc", null, {}]) {
    assert.throws(() => parsed(bad), { name: "ArtifactCorrupt", message: /expected 3 sha256$/ });
  }
});
