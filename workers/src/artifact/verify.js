/** Checks a file against the manifest while it is being read. */
import { ArtifactCorrupt } from "../errors.js";
import { PIECE_BYTES } from "./manifest.js";

/** @typedef {import("./manifest.js").FileEntry} FileEntry */

/**
 * @typedef {object} Hash
 * @property {(data: Uint8Array) => void} update
 * @property {() => string} hex
 */

/**
 * SHA-256 of a whole buffer, on another thread: it may be asked for several at once.
 *
 * @typedef {(data: Uint8Array<ArrayBuffer>) => Promise<ArrayBuffer>} Digest
 */

const REMEDY = "export or upload it again";

/** Pieces that are read while those before them are digested. */
const PIECES_AHEAD = 3;

/**
 * Pass the chunks of a file on; throw at the end if they were not the file.
 *
 * @param {string} name
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {FileEntry} entry
 * @param {Hash} hash
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* verified(name, chunks, entry, hash) {
  for await (const chunk of measured(name, chunks, entry)) {
    hash.update(chunk);
    yield chunk;
  }
  const found = hash.hex();
  if (found !== entry.sha256) throw mismatch(name, found, entry.sha256);
}

/**
 * Pass a file on piece by piece, each once it turned out to be right.
 *
 * @param {string} name
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {FileEntry} entry
 * @param {readonly string[]} pieces `piecesOf(entry)`
 * @param {Digest} digest
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* verifiedPieces(name, chunks, entry, pieces, digest) {
  /** @type {{piece: Uint8Array, digested: Promise<ArrayBuffer>}[]} */
  const ahead = [];
  let at = 0;
  const first = async () => {
    const { piece, digested } = /** @type {(typeof ahead)[0]} */ (ahead.shift());
    const found = hexOf(new Uint8Array(await digested));
    const expected = pieces[at / PIECE_BYTES];
    const where = pieces.length === 1 ? "" : ` from byte ${at} to ${at + piece.length}`;
    if (found !== expected) throw mismatch(name + where, found, expected);
    at += PIECE_BYTES;
    return piece;
  };
  for await (const piece of inPieces(measured(name, chunks, entry), entry.bytes)) {
    const digested = digest(piece);
    digested.catch(() => {}); // seen when its turn comes
    ahead.push({ piece, digested });
    if (ahead.length > PIECES_AHEAD) yield await first();
  }
  while (ahead.length > 0) yield await first();
}

/**
 * @param {FileEntry} entry
 * @returns {readonly string[] | null} the sha256 of each piece of the file, null where the
 *   manifest does not tell
 */
export function piecesOf({ bytes, sha256, pieces }) {
  return bytes <= PIECE_BYTES ? [sha256] : (pieces ?? null);
}

/**
 * @param {string} name
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {FileEntry} entry
 * @returns {AsyncGenerator<Uint8Array, void, void>} the chunks, as many bytes as there should be
 */
async function* measured(name, chunks, entry) {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > entry.bytes) {
      throw new ArtifactCorrupt(
        `${name} has more than the ${entry.bytes} bytes of manifest.json; ${REMEDY}`,
      );
    }
    yield chunk;
  }
  if (bytes !== entry.bytes) {
    throw new ArtifactCorrupt(
      `${name} ends after ${bytes} bytes, manifest.json says ${entry.bytes}; ${REMEDY}`,
    );
  }
}

/**
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {number} bytes of all of them
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>, void, void>} the same bytes in buffers of
 *   their own, all full but the last; an empty file is one empty piece
 */
async function* inPieces(chunks, bytes) {
  if (bytes === 0) yield new Uint8Array(0);
  let left = bytes;
  const next = () => new Uint8Array(Math.min(PIECE_BYTES, left));
  let piece = next();
  let filled = 0;
  for await (const chunk of chunks) {
    for (let used = 0; used < chunk.length;) {
      const part = chunk.subarray(used, used + piece.length - filled);
      piece.set(part, filled);
      filled += part.length;
      used += part.length;
      if (filled < piece.length) continue;
      yield piece;
      left -= filled;
      piece = next();
      filled = 0;
    }
  }
}

/**
 * @param {string} what
 * @param {string} found
 * @param {string} expected
 */
function mismatch(what, found, expected) {
  return new ArtifactCorrupt(
    `${what} has sha256 ${found}, manifest.json says ${expected}; ${REMEDY}`,
  );
}

/** @param {Uint8Array} bytes */
function hexOf(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
