/* The rules of each op kind. */
#ifndef VOLERY_OP_RULES_H
#define VOLERY_OP_RULES_H
#include "program/validate.h"

typedef struct {
  const v_program *program;
  const v_op_record *op;
} v_op_check;

bool v_op_known(const v_op_record *op);

/* Both return the rule that the op breaks, or 0. v_check_op may only be called when
 * v_check_references found nothing: then every index it follows is in range. */
v_rule v_check_references(const v_op_check *c);
v_rule v_check_op(const v_op_check *c);

#endif
