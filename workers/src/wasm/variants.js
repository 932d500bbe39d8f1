/** The four wasm builds: which one this host gets, and where its bytes come from. */
import { ArtifactCorrupt, ArtifactUnsupported, InvalidInput } from "../errors.js";
import { hasExactRelaxedDot, hasSimd } from "./probes.js";

/** @typedef {"simd" | "relaxed" | "simd-threads" | "relaxed-threads"} Variant */

/**
 * What a caller may say about the wasm file. `url`, `bytes` and `module` exclude each
 * other; without any the file beside this package is used.
 *
 * @typedef {object} WasmOptions
 * @property {Variant} [variant] take this build instead of the best one
 * @property {string | URL | ((variant: Variant) => string | URL)} [url] where the build is: its
 *   file, a folder (ends in "/") that holds all four, or a function of the build
 * @property {Uint8Array | ArrayBuffer} [bytes] the build itself
 * @property {WebAssembly.Module} [module] the build, compiled: for hosts that forbid
 *   compiling and for extensions
 */

/** @type {readonly Variant[]} */
const VARIANTS = ["simd", "relaxed", "simd-threads", "relaxed-threads"];

/**
 * Where this package has a build. Literal URLs, one by one: bundlers find assets by this very
 * expression. In a function: edge runtimes have no `import.meta.url`.
 *
 * @param {Variant} variant
 * @returns {URL}
 */
function packaged(variant) {
  switch (variant) {
    case "simd":
      return new URL("../../wasm/volery-simd.wasm", import.meta.url);
    case "relaxed":
      return new URL("../../wasm/volery-relaxed.wasm", import.meta.url);
    case "simd-threads":
      return new URL("../../wasm/volery-simd-threads.wasm", import.meta.url);
    default:
      return new URL("../../wasm/volery-relaxed-threads.wasm", import.meta.url);
  }
}

/**
 * @param {Variant} variant
 * @param {WasmOptions["url"]} asked
 * @returns {URL}
 */
function urlOf(variant, asked) {
  if (asked === undefined) return packaged(variant);
  const given = typeof asked === "function" ? asked(variant) : asked;
  const url = new URL(given, globalThis.location?.href ?? import.meta.url);
  return url.pathname.endsWith("/") ? new URL(`volery-${variant}.wasm`, url) : url;
}

const FEATURE_RELAXED = 1;
const FEATURE_THREADS = 2;

/**
 * @param {boolean} threads whether the build must share its memory with other threads
 * @param {WasmOptions} options
 * @returns {Variant}
 */
export function chooseVariant(threads, options) {
  if (options.variant !== undefined) {
    if (!VARIANTS.includes(options.variant)) {
      throw new InvalidInput(
        `wasm.variant is ${options.variant}, expected one of ${VARIANTS.join(", ")}`,
      );
    }
    const single = /** @type {Variant} */ (options.variant.replace("-threads", ""));
    return threads ? /** @type {Variant} */ (`${single}-threads`) : single;
  }
  if (!hasSimd()) {
    throw new ArtifactUnsupported(
      "this host's WebAssembly lacks 128-bit SIMD; use a browser or runtime from 2021 or later",
    );
  }
  const single = hasExactRelaxedDot() ? "relaxed" : "simd";
  return threads ? `${single}-threads` : single;
}

/**
 * @param {Variant} variant
 * @returns {number} what its `v_features` must return
 */
export function featuresOf(variant) {
  return (
    (variant.startsWith("relaxed") ? FEATURE_RELAXED : 0) |
    (variant.endsWith("-threads") ? FEATURE_THREADS : 0)
  );
}

/**
 * @param {Variant} variant
 * @param {WasmOptions} options
 * @param {(url: URL) => Promise<{bytes: Uint8Array, type: string}>} read the host's way to
 *   get a file, with its content type
 * @returns {Promise<WebAssembly.Module>}
 */
export async function loadModule(variant, options, read) {
  if (options.module !== undefined) return options.module;
  let bytes;
  let origin = "wasm.bytes";
  if (options.bytes !== undefined) {
    bytes = options.bytes instanceof Uint8Array ? options.bytes : new Uint8Array(options.bytes);
  } else {
    const url = urlOf(variant, options.url);
    const file = await read(url);
    bytes = file.bytes;
    origin = `${url.href} (${file.type})`;
  }
  const magic = [0x00, 0x61, 0x73, 0x6d];
  if (!magic.every((byte, i) => bytes[i] === byte)) {
    throw new ArtifactCorrupt(
      `${origin} is not a WebAssembly file; serve the package's wasm folder or pass wasm: {url} or {module}`,
    );
  }
  try {
    return await WebAssembly.compile(/** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  } catch (cause) {
    throw new ArtifactUnsupported(
      `${origin} does not compile here (${cause}); pass wasm: {variant: "simd"} or, where ` +
        "compiling is forbidden, wasm: {module}",
      { cause },
    );
  }
}
