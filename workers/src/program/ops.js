/**
 * The vocabulary of a program: wire numbers of ops, tensor formats and enums. Mirrors
 * `runtime_py/program/ops.py`, and a test keeps the two equal. The executor in wasm reads
 * and validates the op records; the hands only need the tensor table and the output slot.
 */

/** Columns that share one scale (and min) in the block formats. */
export const BLOCK = 32;

/** Tokens in one block of the paged key-value cache. */
export const KV_BLOCK = 32;

/** What one row of a slot stands for. */
export const Rows = Object.freeze({ TOKENS: 0, SEQS: 1, PICKED: 2 });

/** How a weight tensor is stored, host-neutral, in the shards. */
export const TensorFormat = Object.freeze({
  F32: 0,
  F16: 1,
  I8R: 2,
  I8B32: 3,
  I4B32: 4,
  S8B32: 5,
});

export const Activation = Object.freeze({
  NONE: 0,
  GELU: 1,
  GELU_TANH: 2,
  QUICK_GELU: 3,
  RELU: 4,
  RELU_SQUARED: 5,
  SILU: 6,
  TANH: 7,
  SIGMOID: 8,
  MISH: 9,
  ELU: 10,
  LEAKY_RELU: 11,
  SOFTPLUS: 12,
  ABS: 13,
  SQRT: 14,
  EXP: 15,
  NEG: 16,
  HARD_SWISH: 17,
});

export const NormMode = Object.freeze({ LAYER: 0, RMS: 1 });

export const BinaryOp = Object.freeze({ ADD: 0, SUB: 1, MUL: 2, DIV: 3 });

export const PoolMode = Object.freeze({
  MEAN: 0,
  CLS: 1,
  MAX: 2,
  LAST: 3,
  MEAN_SQRT_LEN: 4,
  WEIGHTED_MEAN: 5,
});

export const OpKind = Object.freeze({
  EMBED: 1,
  NORM: 2,
  LINEAR: 3,
  GLU: 4,
  ROPE: 5,
  ATTENTION: 6,
  POOL: 7,
  NORMALIZE: 8,
  UNARY: 9,
  BINARY: 10,
  CACHE: 11,
  ROWS: 12,
});
