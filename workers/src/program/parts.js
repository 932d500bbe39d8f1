/** How each tensor format lies in the shards: its safetensors entries and row sizes. */
import { BLOCK, TensorFormat } from "./ops.js";

/** @typedef {import("./format.js").Tensor} Tensor */

/**
 * @typedef {object} Part one safetensors entry of a tensor
 * @property {string} name
 * @property {string} dtype as safetensors spells it
 * @property {number[]} rowShape its shape without the leading rows
 * @property {number} rowBytes
 */

/**
 * The parts of a tensor in the order of `v_write_rows`: data, scale, min.
 *
 * @param {Tensor} tensor
 * @returns {Part[]}
 */
export function partsOf({ name, format, shape }) {
  const inner = shape.slice(1);
  const cols = inner.reduce((a, b) => a * b, 1);
  const blocks = Math.ceil(cols / BLOCK);
  const part = (
    /** @type {string} */ suffix,
    /** @type {string} */ dtype,
    /** @type {number} */ itemBytes,
    /** @type {number[]} */ rowShape,
  ) => ({
    name: name + suffix,
    dtype,
    rowShape,
    rowBytes: rowShape.reduce((a, b) => a * b, itemBytes),
  });
  switch (format) {
    case TensorFormat.F32:
      return [part("", "F32", 4, inner)];
    case TensorFormat.F16:
      return [part("", "F16", 2, inner)];
    case TensorFormat.I8R:
      return [part("", "I8", 1, inner), part(".scale", "F32", 4, [])];
    case TensorFormat.S8B32:
      return [part("", "I8", 1, [BLOCK * blocks]), part(".scale", "F16", 2, [blocks])];
    default: {
      const codes = format === TensorFormat.I8B32 ? BLOCK * blocks : (BLOCK / 2) * blocks;
      return [
        part("", "U8", 1, [codes]),
        part(".scale", "F16", 2, [blocks]),
        part(".min", "F16", 2, [blocks]),
      ];
    }
  }
}
