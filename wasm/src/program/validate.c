#include "program/validate.h"

#include "plan/memory.h"
#include "program/op_rules.h"

#define MAX_PROGRAM_BYTES (16u << 20)
#define MAX_WIDTH (1u << 20)
#define MAX_DIM (1u << 27)
#define MAX_SLOTS 4096
#define MAX_TENSORS 65536
#define NOWHERE UINT32_MAX

static int32_t broken(uint32_t where, v_rule rule) { return v_fail(V_BAD_PROGRAM, where, rule); }

static int32_t read_header(const uint8_t *bytes, uint32_t size, v_program *p) {
  const v_program_header *h = (const v_program_header *)(const void *)bytes;
  if (size < sizeof *h) return broken(NOWHERE, V_RULE_HEADER);
  if (h->magic != V_PROGRAM_MAGIC || h->zero) return broken(NOWHERE, V_RULE_HEADER);
  if (h->version != V_PROGRAM_VERSION) return v_fail(V_UNSUPPORTED, NOWHERE, h->version);
  const uint64_t slots = (uint64_t)h->num_slots * sizeof(v_slot_record);
  const uint64_t tensors = (uint64_t)h->num_tensors * sizeof(v_tensor_record);
  const uint64_t ops = (uint64_t)h->num_ops * sizeof(v_op_record);
  const uint64_t total = sizeof *h + slots + tensors + ops + h->names_bytes;
  if (total != size || h->total_bytes != size || size > MAX_PROGRAM_BYTES) {
    return broken(NOWHERE, V_RULE_HEADER);
  }
  if (!h->num_slots || h->num_slots > MAX_SLOTS || !h->num_tensors ||
      h->num_tensors > MAX_TENSORS || !h->num_ops || h->num_ops > V_MAX_OPS) {
    return broken(NOWHERE, V_RULE_COUNTS);
  }
  const uint8_t *at = bytes + sizeof *h;
  p->header = h;
  p->slots = (const v_slot_record *)(const void *)at;
  p->tensors = (const v_tensor_record *)(const void *)(at + slots);
  p->ops = (const v_op_record *)(const void *)(at + slots + tensors);
  p->num_slots = h->num_slots;
  p->num_tensors = h->num_tensors;
  p->num_ops = h->num_ops;
  if (h->output_slot >= h->num_slots) return broken(NOWHERE, V_RULE_OUTPUT);
  if (!h->vocab_size || h->vocab_size > MAX_DIM || h->max_positions > MAX_DIM) {
    return broken(NOWHERE, V_RULE_LIMITS);
  }
  return V_OK;
}

static int32_t check_slots(const v_program *p) {
  for (uint32_t i = 0; i < p->num_slots; i++) {
    const v_slot_record *s = &p->slots[i];
    if (s->rows > V_ROWS_PICKED || s->zero8 || s->zero16 || !s->width || s->width > MAX_WIDTH) {
      return broken(i, V_RULE_SLOT);
    }
  }
  return V_OK;
}

static int32_t check_tensors(const v_program *p) {
  for (uint32_t i = 0; i < p->num_tensors; i++) {
    const v_tensor_record *t = &p->tensors[i];
    if (!t->name_bytes || (uint64_t)t->name_offset + t->name_bytes > p->header->names_bytes) {
      return broken(i, V_RULE_TENSOR_NAME);
    }
    if (t->ndim < 1 || t->ndim > 4 || t->zero[0] || t->zero[1]) {
      return broken(i, V_RULE_TENSOR_SHAPE);
    }
    for (uint32_t d = 0; d < 4; d++) {
      if (!t->shape[d] || t->shape[d] > MAX_DIM || (d >= t->ndim && t->shape[d] != 1)) {
        return broken(i, V_RULE_TENSOR_SHAPE);
      }
    }
    if (t->format > V_FORMAT_S8B32) return v_fail(V_UNSUPPORTED, i, t->format);
    if (t->format >= V_FORMAT_I8R && t->ndim != 2) return broken(i, V_RULE_TENSOR_SHAPE);
  }
  return V_OK;
}

/* One byte per slot that some op has written; the bytes follow the program in memory. */
static int32_t check_ops(const v_program *p, uint8_t *written) {
  v_zero(written, p->num_slots);
  for (uint32_t i = 0; i < p->num_ops; i++) {
    const v_op_record *op = &p->ops[i];
    v_op_check c = {p, op};
    if (!v_op_known(op)) return v_fail(V_UNSUPPORTED, i, op->kind);
    v_rule rule = v_check_references(&c);
    if (rule) return broken(i, rule);
    for (uint32_t n = 0; n < V_MAX_INS; n++) {
      if (op->ins[n] >= 0 && !written[op->ins[n]]) return broken(i, V_RULE_UNWRITTEN);
    }
    rule = v_check_op(&c);
    if (rule) return broken(i, rule);
    if (op->out >= 0) written[op->out] = 1;
    if (op->out2 >= 0) written[op->out2] = 1;
  }
  return written[p->header->output_slot] ? V_OK : broken(NOWHERE, V_RULE_OUTPUT);
}

bool v_is_decoder(const v_program *p) {
  for (uint32_t i = 0; i < p->num_ops; i++) {
    if (p->ops[i].kind == V_OP_CACHE) return true;
  }
  return false;
}

/* A decoder's output are the logits of the wanted rows; nothing else's output is. */
static int32_t check_output(const v_program *p) {
  const v_slot_record *output = &p->slots[p->header->output_slot];
  const bool decoder = v_is_decoder(p);
  if (decoder != (output->rows == V_ROWS_PICKED)) return broken(NOWHERE, V_RULE_OUTPUT);
  if (decoder && output->width != p->header->vocab_size) return broken(NOWHERE, V_RULE_OUTPUT);
  return V_OK;
}

int32_t v_validate(const uint8_t *bytes, uint32_t size, v_program *p) {
  int32_t error = read_header(bytes, size, p);
  if (error == V_OK) error = check_slots(p);
  if (error == V_OK) error = check_tensors(p);
  if (error != V_OK) return error;
  const uint64_t mark = v_heap_mark();
  uint8_t *written = v_heap_alloc(p->num_slots);
  if (!written) return v_fail(V_NO_MEMORY, p->num_slots, 0);
  error = check_ops(p, written);
  v_heap_reset(mark);
  if (error == V_OK) error = check_output(p);
  return error;
}
