/* program.bin: the records and numbers of runtime_py/program/{format,ops}.py.
 *
 * Everything is little-endian and naturally aligned, so that the module reads the
 * records in place. Indices of -1 mean "none". tests/program compares the enums with
 * the Python table.
 */
#ifndef VOLERY_PROGRAM_H
#define VOLERY_PROGRAM_H
#include <stdint.h>

#define V_PROGRAM_MAGIC 0x59524c56u /* 'VLRY' */
#define V_PROGRAM_VERSION 1
#define V_BLOCK 32    /* columns that share a scale (and min) in the block formats */
#define V_KV_BLOCK 32 /* tokens in one block of the paged key-value cache */

typedef enum {
  V_ROWS_TOKENS = 0,
  V_ROWS_SEQS = 1,
  V_ROWS_PICKED = 2, /* one row per wanted row of the step */
} v_rows;

typedef enum {
  V_FORMAT_F32 = 0,
  V_FORMAT_F16 = 1,
  V_FORMAT_I8R = 2,
  V_FORMAT_I8B32 = 3,
  V_FORMAT_I4B32 = 4,
  V_FORMAT_S8B32 = 5,
} v_format;

typedef enum {
  V_ACTIVATION_NONE = 0,
  V_ACTIVATION_GELU = 1,
  V_ACTIVATION_GELU_TANH = 2,
  V_ACTIVATION_QUICK_GELU = 3,
  V_ACTIVATION_RELU = 4,
  V_ACTIVATION_RELU_SQUARED = 5,
  V_ACTIVATION_SILU = 6,
  V_ACTIVATION_TANH = 7,
  V_ACTIVATION_SIGMOID = 8,
  V_ACTIVATION_MISH = 9,
  V_ACTIVATION_ELU = 10,
  V_ACTIVATION_LEAKY_RELU = 11,
  V_ACTIVATION_SOFTPLUS = 12,
  V_ACTIVATION_ABS = 13,
  V_ACTIVATION_SQRT = 14,
  V_ACTIVATION_EXP = 15,
  V_ACTIVATION_NEG = 16,
  V_ACTIVATION_HARD_SWISH = 17,
} v_activation;

typedef enum {
  V_NORM_LAYER = 0,
  V_NORM_RMS = 1,
} v_norm_mode;

typedef enum {
  V_BINARY_ADD = 0,
  V_BINARY_SUB = 1,
  V_BINARY_MUL = 2,
  V_BINARY_DIV = 3,
} v_binary_op;

typedef enum {
  V_POOL_MEAN = 0,
  V_POOL_CLS = 1,
  V_POOL_MAX = 2,
  V_POOL_LAST = 3,
  V_POOL_MEAN_SQRT_LEN = 4,
  V_POOL_WEIGHTED_MEAN = 5,
} v_pool_mode;

typedef enum {
  V_OP_EMBED = 1,
  V_OP_NORM = 2,
  V_OP_LINEAR = 3,
  V_OP_GLU = 4,
  V_OP_ROPE = 5,
  V_OP_ATTENTION = 6,
  V_OP_POOL = 7,
  V_OP_NORMALIZE = 8,
  V_OP_UNARY = 9,
  V_OP_BINARY = 10,
  V_OP_CACHE = 11,
  V_OP_ROWS = 12,
} v_op_kind;

/* A flag belongs to one op kind, so the values repeat. */
typedef enum {
  V_FLAG_CAUSAL = 1,
  V_FLAG_INTERLEAVED = 1,
  V_FLAG_UP_FIRST = 1,
  V_FLAG_SWAP = 1,
} v_flag;

/* Positions of the named fields of OP_SPECS in an op record. */
enum { V_EMBED_TABLE, V_EMBED_POSITIONS, V_EMBED_CONSTANT };            /* tensors */
enum { V_EMBED_POSITION_OFFSET };                                       /* uints */
enum { V_EMBED_SCALE };                                                 /* floats */
enum { V_NORM_X, V_NORM_RESIDUAL };                                     /* ins */
enum { V_NORM_GAMMA, V_NORM_BETA };                                     /* tensors */
enum { V_NORM_MODE, V_NORM_GROUP, V_NORM_OFFSET, V_NORM_COLUMNS };      /* uints */
enum { V_NORM_EPS };                                                    /* floats */
enum { V_LINEAR_X, V_LINEAR_RESIDUAL };                                 /* ins */
enum { V_LINEAR_WEIGHT, V_LINEAR_BIAS };                                /* tensors */
enum { V_LINEAR_ACTIVATION, V_LINEAR_X_OFFSET, V_LINEAR_ACTIVATION_BITS }; /* uints */
enum { V_GLU_GATE, V_GLU_UP };                                          /* ins */
enum { V_GLU_ACTIVATION };                                              /* uints */
enum { V_ROPE_X };                                                      /* ins */
enum { V_ROPE_INV_FREQ };                                               /* tensors */
enum { V_ROPE_HEADS, V_ROPE_HEAD_DIM, V_ROPE_ROTARY_DIM, V_ROPE_OFFSET }; /* uints */
enum { V_ROPE_SCALE };                                                  /* floats */
enum { V_ATTENTION_Q, V_ATTENTION_K, V_ATTENTION_V };                   /* ins */
enum { V_ATTENTION_BIAS };                                              /* tensors */
enum {
  V_ATTENTION_HEADS,
  V_ATTENTION_KV_HEADS,
  V_ATTENTION_HEAD_DIM,
  V_ATTENTION_Q_OFFSET,
  V_ATTENTION_K_OFFSET,
  V_ATTENTION_V_OFFSET,
  V_ATTENTION_WINDOW,
  V_ATTENTION_CACHE,
};                                                                      /* uints */
enum { V_ATTENTION_SCALE, V_ATTENTION_SOFTCAP };                        /* floats */
enum { V_POOL_X };                                                      /* ins */
enum { V_POOL_MODE, V_POOL_OUT_OFFSET };                                /* uints */
enum { V_NORMALIZE_X };                                                 /* ins */
enum { V_NORMALIZE_EPS };                                               /* floats */
enum { V_UNARY_X };                                                     /* ins */
enum { V_UNARY_ACTIVATION };                                            /* uints */
enum { V_UNARY_ALPHA };                                                 /* floats */
enum { V_BINARY_A, V_BINARY_B };                                        /* ins */
enum { V_BINARY_CONSTANT };                                             /* tensors */
enum { V_BINARY_OP };                                                   /* uints */
enum { V_CACHE_K, V_CACHE_V };                                          /* ins */
enum {
  V_CACHE_LAYER,
  V_CACHE_KV_HEADS,
  V_CACHE_HEAD_DIM,
  V_CACHE_K_OFFSET,
  V_CACHE_V_OFFSET,
};                                                                      /* uints */
enum { V_ROWS_X };                                                      /* ins */

#define V_MAX_INS 4
#define V_MAX_TENSORS 6
#define V_MAX_UINTS 10
#define V_MAX_FLOATS 4

typedef struct {
  uint32_t magic;
  uint16_t version, zero;
  uint32_t total_bytes, num_slots, num_tensors, num_ops, names_bytes;
  uint32_t output_slot, vocab_size, max_positions;
  uint8_t reserved[24];
} v_program_header;

typedef struct {
  uint8_t rows, zero8;
  uint16_t zero16;
  uint32_t width;
} v_slot_record;

typedef struct {
  uint32_t name_offset;
  uint16_t name_bytes;
  uint8_t format, ndim;
  uint32_t shape[4];
  uint32_t zero[2];
} v_tensor_record;

typedef struct {
  uint16_t kind, flags;
  int32_t out, out2;
  int32_t ins[V_MAX_INS];
  int32_t tensors[V_MAX_TENSORS];
  uint32_t uints[V_MAX_UINTS];
  float floats[V_MAX_FLOATS];
  uint32_t zero;
} v_op_record;

_Static_assert(sizeof(v_program_header) == 64, "header record");
_Static_assert(sizeof(v_slot_record) == 8, "slot record");
_Static_assert(sizeof(v_tensor_record) == 32, "tensor record");
_Static_assert(sizeof(v_op_record) == 112, "op record");

#endif
