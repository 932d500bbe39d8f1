/**
 * `program.bin`: what a host needs of it. The layout is documented in
 * `runtime_py/program/format.py`; the wasm module repeats these checks and validates the
 * ops, so the hands read the header, the output slot and the tensor table only.
 */
import { ArtifactCorrupt, ArtifactUnsupported } from "../errors.js";
import { Rows, TensorFormat } from "./ops.js";

const MAGIC = 0x59524c56; // 'VLRY', little-endian
const VERSION = 1;
const HEADER_BYTES = 64;
const SLOT_BYTES = 8;
const TENSOR_BYTES = 32;
const OP_BYTES = 112;
const MAX_PROGRAM_BYTES = 16 << 20;
const MAX_TENSORS = 65536;
const MAX_DIM = 1 << 27;

/**
 * @typedef {object} Slot an activation buffer of f32
 * @property {number} rows one of `Rows`
 * @property {number} width columns
 */

/**
 * @typedef {object} Tensor a weight
 * @property {string} name its entry in the shards
 * @property {number} format one of `TensorFormat`
 * @property {number[]} shape logical shape, 1 to 4 dimensions
 */

/**
 * @typedef {object} ProgramInfo
 * @property {Tensor[]} tensors
 * @property {Slot} output the slot a step returns: a row per sequence, per token, or per
 *   wanted row of a decoder
 * @property {boolean} isDecoder it has a key-value cache, and its output is logits
 * @property {number} numOps
 * @property {number} vocabSize token ids are in 0 .. vocabSize - 1
 * @property {number} maxPositions longest sequence in tokens; 0 = unlimited
 */

/**
 * Decode the parts of `program.bin` that the hands use.
 *
 * @param {Uint8Array} bytes
 * @returns {ProgramInfo}
 * @throws {ArtifactCorrupt} the bytes break the format
 * @throws {ArtifactUnsupported} a newer version, or a tensor format unknown here
 */
export function decodeProgram(bytes) {
  if (bytes.length < HEADER_BYTES) {
    throw new ArtifactCorrupt(
      `program.bin has ${bytes.length} bytes, its header alone has ${HEADER_BYTES}`,
    );
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const u32 = (/** @type {number} */ at) => view.getUint32(at, true);
  if (u32(0) !== MAGIC || view.getUint16(6, true) !== 0) {
    throw new ArtifactCorrupt("program.bin does not start with 'VLRY'");
  }
  const version = view.getUint16(4, true);
  if (version !== VERSION) {
    throw new ArtifactUnsupported(
      `program.bin is version ${version}, this runtime reads version ${VERSION}; ` +
        "export the model again or update volery",
    );
  }
  const [numSlots, numTensors, numOps, namesBytes] = [u32(12), u32(16), u32(20), u32(24)];
  const total = u32(8);
  const need =
    HEADER_BYTES +
    numSlots * SLOT_BYTES +
    numTensors * TENSOR_BYTES +
    numOps * OP_BYTES +
    namesBytes;
  if (total !== bytes.length || need !== total || total > MAX_PROGRAM_BYTES) {
    throw new ArtifactCorrupt(
      `program.bin has ${bytes.length} bytes, its header says ${total} and its tables need ${need}`,
    );
  }
  if (numTensors > MAX_TENSORS) {
    throw new ArtifactCorrupt(
      `program.bin has ${numTensors} tensors, expected at most ${MAX_TENSORS}`,
    );
  }
  const outputSlot = u32(28);
  if (outputSlot >= numSlots) {
    throw new ArtifactCorrupt(`program.bin: output slot ${outputSlot} of ${numSlots}`);
  }
  const output = decodeSlot(view, HEADER_BYTES + outputSlot * SLOT_BYTES);
  const tensorsAt = HEADER_BYTES + numSlots * SLOT_BYTES;
  const names = bytes.subarray(total - namesBytes);
  return {
    tensors: Array.from({ length: numTensors }, (_, i) =>
      decodeTensor(view, tensorsAt + i * TENSOR_BYTES, names),
    ),
    output,
    isDecoder: output.rows === Rows.PICKED,
    numOps,
    vocabSize: u32(32),
    maxPositions: u32(36),
  };
}

/**
 * @param {DataView} view
 * @param {number} at
 * @returns {Slot}
 */
function decodeSlot(view, at) {
  const rows = view.getUint8(at);
  const width = view.getUint32(at + 4, true);
  if (!Object.values(Rows).includes(/** @type {any} */ (rows)) || width === 0) {
    throw new ArtifactCorrupt(`program.bin: output slot of row kind ${rows} and width ${width}`);
  }
  return { rows, width };
}

/**
 * @param {DataView} view
 * @param {number} at
 * @param {Uint8Array} names
 * @returns {Tensor}
 */
function decodeTensor(view, at, names) {
  const start = view.getUint32(at, true);
  const length = view.getUint16(at + 4, true);
  const format = view.getUint8(at + 6);
  const ndim = view.getUint8(at + 7);
  if (length === 0 || start + length > names.length) {
    throw new ArtifactCorrupt("program.bin: a tensor's name lies outside the name table");
  }
  const dims = [0, 1, 2, 3].map((i) => view.getUint32(at + 8 + 4 * i, true));
  if (
    ndim < 1 ||
    ndim > 4 ||
    dims.some((d, i) => (i < ndim ? d < 1 || d > MAX_DIM : d !== 1)) ||
    view.getUint32(at + 24, true) !== 0 ||
    view.getUint32(at + 28, true) !== 0
  ) {
    throw new ArtifactCorrupt(`program.bin: tensor record with ${ndim} dimensions [${dims}]`);
  }
  let name;
  try {
    name = new TextDecoder("utf-8", { fatal: true }).decode(names.subarray(start, start + length));
  } catch {
    throw new ArtifactCorrupt("program.bin: a tensor's name is not UTF-8");
  }
  if (!Object.values(TensorFormat).includes(/** @type {any} */ (format))) {
    throw new ArtifactUnsupported(
      `tensor '${name}' has format ${format}, this runtime knows ` +
        `${Object.keys(TensorFormat).join(", ")}; update volery`,
    );
  }
  return { name, format, shape: dims.slice(0, ndim) };
}
