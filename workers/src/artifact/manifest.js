/** `manifest.json`: what an artifact says about itself (docs/design.md, 6.2). */
import { ArtifactCorrupt, ArtifactUnsupported } from "../errors.js";

const FORMAT_VERSION = 1;
export const MAX_MANIFEST_BYTES = 16 << 20;

/** A file's `pieces` are the hashes of so many bytes each, the last of the rest. */
export const PIECE_BYTES = 1 << 20;

/**
 * @typedef {object} FileEntry
 * @property {number} bytes
 * @property {string} sha256 lowercase hexadecimal
 * @property {string[]} [pieces] the sha256 of every MiB of it, which old artifacts do not tell
 */

/**
 * @typedef {object} Manifest
 * @property {Record<string, FileEntry>} files every file but the manifest
 * @property {string[]} shards names of the weight shards, in order
 * @property {Record<string, any>} raw the whole document
 */

/**
 * Parse and check what the loader relies on.
 *
 * @param {Uint8Array} bytes
 * @param {string} location for messages
 * @returns {Manifest}
 */
export function parseManifest(bytes, location) {
  const raw = parseJson(bytes, `${location} manifest.json`);
  if (!isRecord(raw) || raw.format !== "volery") {
    throw new ArtifactCorrupt(
      `manifest.json of ${location} has format ${describe(raw?.format)}, expected "volery"; ` +
        "is this the folder that `toolchain export` wrote?",
    );
  }
  if (raw.format_version !== FORMAT_VERSION) {
    throw new ArtifactUnsupported(
      `the artifact has format version ${describe(raw.format_version)}, this runtime reads ` +
        `${FORMAT_VERSION}; export the model again or update volery`,
    );
  }
  if (!isRecord(raw.files)) throw new ArtifactCorrupt("manifest.json lists no files");
  for (const [name, entry] of Object.entries(raw.files)) {
    // A name is a plain file name: an artifact must not reach outside its folder.
    if (!/^[A-Za-z0-9_][A-Za-z0-9._-]*$/.test(name)) {
      throw new ArtifactCorrupt(
        `manifest.json lists the file ${describe(name)}, expected a plain name`,
      );
    }
    if (
      !isRecord(entry) ||
      !Number.isSafeInteger(entry.bytes) ||
      entry.bytes < 0 ||
      !isSha256(entry.sha256)
    ) {
      throw new ArtifactCorrupt(
        `manifest.json: ${name} is ${describe(entry)}, expected its bytes and sha256`,
      );
    }
    const { bytes, pieces } = entry;
    const count = Math.ceil(bytes / PIECE_BYTES);
    if (
      pieces !== undefined &&
      !(Array.isArray(pieces) && pieces.length === count && pieces.every(isSha256))
    ) {
      throw new ArtifactCorrupt(
        `manifest.json: ${name} has the pieces ${describe(pieces)}, expected ${count} sha256`,
      );
    }
  }
  return { files: raw.files, shards: shardNames(Object.keys(raw.files)), raw };
}

/** @param {unknown} value */
function isSha256(value) {
  return typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
}

/**
 * @param {string[]} names
 * @returns {string[]}
 */
function shardNames(names) {
  const shards = names.filter((name) => name.endsWith(".safetensors")).sort();
  const width = 5;
  shards.forEach((name, i) => {
    const pad = (/** @type {number} */ n) => String(n).padStart(width, "0");
    const expected = `weights-${pad(i + 1)}-of-${pad(shards.length)}.safetensors`;
    if (name !== expected) {
      throw new ArtifactCorrupt(`manifest.json lists the shard ${name}, expected ${expected}`);
    }
  });
  if (shards.length === 0) throw new ArtifactCorrupt("manifest.json lists no weights");
  return shards;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} what for messages
 * @returns {any}
 */
export function parseJson(bytes, what) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return JSON.parse(text);
  } catch (cause) {
    if (text !== undefined && /^\s*</.test(text)) {
      throw new ArtifactCorrupt(
        `${what} is an HTML page, expected JSON; the server answers missing files with a page: check the URL`,
        { cause },
      );
    }
    throw new ArtifactCorrupt(`${what} is not JSON (${bytes.length} bytes)`, { cause });
  }
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
export function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value a short, one-line rendering for messages */
function describe(value) {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
