/* Checks every field of a program, so that no kernel can read or write outside its
 * slots and tensors. Mirrors runtime_py/program/{format,validate}.py; the names of
 * tensors matter only to hosts, which look them up, so here they only have to lie in
 * the name table. */
#ifndef VOLERY_VALIDATE_H
#define VOLERY_VALIDATE_H
#include "core/model.h"

#define V_MAX_OPS 65536

/* The rule a program breaks: v_detail(1) after V_BAD_PROGRAM. Rules below 100 concern
 * the file (v_detail(0) is the slot or tensor, or -1), the others the op v_detail(0). */
typedef enum {
  V_RULE_HEADER = 1,       /* magic, zero field, sizes */
  V_RULE_COUNTS = 2,       /* no slots, tensors or ops, or too many */
  V_RULE_SLOT = 3,         /* unknown row kind, or width out of range */
  V_RULE_TENSOR_NAME = 4,  /* empty, or outside the name table */
  V_RULE_TENSOR_SHAPE = 5, /* dimensions out of range or wrong for the format */
  V_RULE_LIMITS = 6,       /* vocabulary or position limit */
  V_RULE_OUTPUT = 7,       /* output slot out of range, never written or of the wrong kind */
  V_RULE_UNKNOWN_FIELD = 100,
  V_RULE_REFERENCE = 101, /* slot or tensor index, unknown flag, non-finite float */
  V_RULE_UNWRITTEN = 102, /* reads a slot before anything writes it */
  V_RULE_ROWS = 103,      /* tokens where sequences are meant, or the reverse */
  V_RULE_WIDTH = 104,     /* widths of slots, heads or offsets do not fit */
  V_RULE_TENSOR = 105,    /* format or shape of a weight */
  V_RULE_VALUE = 106,     /* enum or number out of range */
  V_RULE_ALIAS = 107,     /* out overlaps an input it must not; a cache layer written twice */
} v_rule;

/* Reads the program in place at `bytes` (4-byte aligned) and fills `program`. */
int32_t v_validate(const uint8_t *bytes, uint32_t size, v_program *program);

/* Whether a checked program has a key-value cache. */
bool v_is_decoder(const v_program *program);

#endif
