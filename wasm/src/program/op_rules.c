#include "program/op_rules.h"

#define OK ((v_rule)0)
#define REQUIRE(condition, rule) \
  if (!(condition)) return rule

/* How many fields of each sort an op kind has, and which of them may be -1. */
typedef struct {
  uint8_t ins, optional_ins, tensors, optional_tensors, uints, floats;
  uint16_t flags;
} v_op_spec;

#define BIT(n) (1u << (n))

static const v_op_spec SPECS[] = {
    [V_OP_EMBED] = {0, 0, 3, BIT(V_EMBED_POSITIONS) | BIT(V_EMBED_CONSTANT), 1, 1, 0},
    [V_OP_NORM] = {2, BIT(V_NORM_RESIDUAL), 2, BIT(V_NORM_GAMMA) | BIT(V_NORM_BETA), 4, 1, 0},
    [V_OP_LINEAR] = {2, BIT(V_LINEAR_RESIDUAL), 2, BIT(V_LINEAR_BIAS), 3, 0, 0},
    [V_OP_GLU] = {2, BIT(V_GLU_UP), 0, 0, 1, 0, V_FLAG_UP_FIRST},
    [V_OP_ROPE] = {1, 0, 1, 0, 4, 1, V_FLAG_INTERLEAVED},
    [V_OP_ATTENTION] = {3, BIT(V_ATTENTION_K) | BIT(V_ATTENTION_V), 1, BIT(V_ATTENTION_BIAS), 8, 2,
                        V_FLAG_CAUSAL},
    [V_OP_POOL] = {1, 0, 0, 0, 2, 0, 0},
    [V_OP_NORMALIZE] = {1, 0, 0, 0, 0, 1, 0},
    [V_OP_UNARY] = {1, 0, 0, 0, 1, 1, 0},
    [V_OP_BINARY] = {2, BIT(V_BINARY_B), 1, BIT(V_BINARY_CONSTANT), 1, 0, V_FLAG_SWAP},
    [V_OP_CACHE] = {2, 0, 0, 0, 5, 0, 0},
    [V_OP_ROWS] = {1, 0, 0, 0, 0, 0, 0},
};

bool v_op_known(const v_op_record *op) { return op->kind >= V_OP_EMBED && op->kind <= V_OP_ROWS; }

static v_rule check_unknown_fields(const v_op_record *op, const v_op_spec *spec) {
  bool clean = op->zero == 0;
  for (uint32_t i = spec->ins; i < V_MAX_INS; i++) clean &= op->ins[i] == -1;
  for (uint32_t i = spec->tensors; i < V_MAX_TENSORS; i++) clean &= op->tensors[i] == -1;
  for (uint32_t i = spec->uints; i < V_MAX_UINTS; i++) clean &= op->uints[i] == 0;
  for (uint32_t i = spec->floats; i < V_MAX_FLOATS; i++) clean &= op->floats[i] == 0.0f;
  return clean ? OK : V_RULE_UNKNOWN_FIELD;
}

static bool in_range(int32_t index, uint32_t count, bool optional) {
  return index >= 0 ? (uint32_t)index < count : optional && index == -1;
}

v_rule v_check_references(const v_op_check *c) {
  const v_op_record *op = c->op;
  const v_program *p = c->program;
  const v_op_spec *spec = &SPECS[op->kind];
  v_rule rule = check_unknown_fields(op, spec);
  REQUIRE(!rule, rule);
  REQUIRE(op->kind == V_OP_CACHE ? op->out == -1 : in_range(op->out, p->num_slots, false),
          V_RULE_REFERENCE);
  REQUIRE(in_range(op->out2, op->kind == V_OP_NORM ? p->num_slots : 0, true), V_RULE_REFERENCE);
  REQUIRE((op->flags & ~spec->flags) == 0, V_RULE_REFERENCE);
  for (uint32_t i = 0; i < spec->ins; i++) {
    REQUIRE(in_range(op->ins[i], p->num_slots, spec->optional_ins >> i & 1), V_RULE_REFERENCE);
  }
  for (uint32_t i = 0; i < spec->tensors; i++) {
    REQUIRE(in_range(op->tensors[i], p->num_tensors, spec->optional_tensors >> i & 1),
            V_RULE_REFERENCE);
  }
  for (uint32_t i = 0; i < spec->floats; i++) {
    REQUIRE(v_is_finite(op->floats[i]), V_RULE_REFERENCE);
  }
  return OK;
}

static const v_slot_record *slot(const v_op_check *c, uint32_t in) {
  return &c->program->slots[c->op->ins[in]];
}
static const v_slot_record *out(const v_op_check *c) { return &c->program->slots[c->op->out]; }
static bool has_in(const v_op_check *c, uint32_t in) { return c->op->ins[in] >= 0; }
static bool has_tensor(const v_op_check *c, uint32_t t) { return c->op->tensors[t] >= 0; }
static const v_tensor_record *tensor(const v_op_check *c, uint32_t t) {
  return &c->program->tensors[c->op->tensors[t]];
}
static bool same_slot(const v_slot_record *a, const v_slot_record *b) {
  return a->rows == b->rows && a->width == b->width;
}

/* Tensor `t` is absent, or f32 with exactly `n` elements in one dimension. */
static bool vector_or_none(const v_op_check *c, uint32_t t, uint32_t n) {
  if (!has_tensor(c, t)) return true;
  const v_tensor_record *x = tensor(c, t);
  return x->format == V_FORMAT_F32 && x->ndim == 1 && x->shape[0] == n;
}

static bool position_format(const v_tensor_record *t) {
  return t->format == V_FORMAT_F32 || t->format == V_FORMAT_F16 || t->format == V_FORMAT_I8R;
}

static v_rule check_embed(const v_op_check *c) {
  const v_program_header *h = c->program->header;
  const v_tensor_record *table = tensor(c, V_EMBED_TABLE);
  const uint32_t width = out(c)->width;
  REQUIRE(out(c)->rows == V_ROWS_TOKENS, V_RULE_ROWS);
  REQUIRE(table->ndim == 2 && table->shape[0] == h->vocab_size && table->shape[1] == width,
          V_RULE_TENSOR);
  if (has_tensor(c, V_EMBED_POSITIONS)) {
    const v_tensor_record *t = tensor(c, V_EMBED_POSITIONS);
    const uint64_t need = (uint64_t)c->op->uints[V_EMBED_POSITION_OFFSET] + h->max_positions;
    REQUIRE(h->max_positions > 0, V_RULE_VALUE);
    REQUIRE(position_format(t) && t->ndim == 2 && t->shape[0] >= need && t->shape[1] == width,
            V_RULE_TENSOR);
  }
  REQUIRE(vector_or_none(c, V_EMBED_CONSTANT, width), V_RULE_TENSOR);
  return OK;
}

static v_rule check_norm(const v_op_check *c) {
  const v_op_record *op = c->op;
  const v_slot_record *x = slot(c, V_NORM_X);
  const uint32_t offset = op->uints[V_NORM_OFFSET], columns = op->uints[V_NORM_COLUMNS];
  const uint32_t width = columns ? columns : x->width;
  const uint32_t group = op->uints[V_NORM_GROUP] ? op->uints[V_NORM_GROUP] : width;
  REQUIRE(x->rows == out(c)->rows, V_RULE_ROWS);
  REQUIRE(op->uints[V_NORM_MODE] <= V_NORM_RMS, V_RULE_VALUE);
  REQUIRE(x->width == out(c)->width, V_RULE_WIDTH);
  if (has_in(c, V_NORM_RESIDUAL)) {
    REQUIRE(slot(c, V_NORM_RESIDUAL)->rows == x->rows, V_RULE_ROWS);
    REQUIRE(slot(c, V_NORM_RESIDUAL)->width == x->width, V_RULE_WIDTH);
  }
  REQUIRE(width % group == 0, V_RULE_WIDTH);
  if (columns) {
    REQUIRE(op->out == op->ins[V_NORM_X], V_RULE_ALIAS);
    REQUIRE((uint64_t)offset + columns <= x->width, V_RULE_WIDTH);
    REQUIRE(!has_in(c, V_NORM_RESIDUAL) && op->out2 < 0, V_RULE_VALUE);
  } else {
    REQUIRE(offset == 0, V_RULE_VALUE);
  }
  REQUIRE(vector_or_none(c, V_NORM_GAMMA, group), V_RULE_TENSOR);
  REQUIRE(vector_or_none(c, V_NORM_BETA, group), V_RULE_TENSOR);
  REQUIRE(op->floats[V_NORM_EPS] >= 0, V_RULE_VALUE);
  if (op->out2 >= 0) {
    REQUIRE(same_slot(&c->program->slots[op->out2], x), V_RULE_WIDTH);
    REQUIRE(op->out2 != op->out, V_RULE_ALIAS);
  }
  return OK;
}

static v_rule check_linear(const v_op_check *c) {
  const v_op_record *op = c->op;
  const v_slot_record *x = slot(c, V_LINEAR_X);
  const v_tensor_record *w = tensor(c, V_LINEAR_WEIGHT);
  REQUIRE(x->rows == out(c)->rows, V_RULE_ROWS);
  REQUIRE(op->uints[V_LINEAR_ACTIVATION] <= V_ACTIVATION_HARD_SWISH, V_RULE_VALUE);
  REQUIRE(w->format != V_FORMAT_I8R && w->ndim == 2, V_RULE_TENSOR);
  REQUIRE((uint64_t)op->uints[V_LINEAR_X_OFFSET] + w->shape[1] <= x->width, V_RULE_WIDTH);
  REQUIRE(w->shape[0] == out(c)->width, V_RULE_WIDTH);
  if (has_in(c, V_LINEAR_RESIDUAL)) {
    REQUIRE(same_slot(slot(c, V_LINEAR_RESIDUAL), out(c)), V_RULE_WIDTH);
  }
  REQUIRE(op->out != op->ins[V_LINEAR_X], V_RULE_ALIAS);
  const uint32_t bits = op->uints[V_LINEAR_ACTIVATION_BITS];
  const bool blocks = w->format >= V_FORMAT_I8B32;
  REQUIRE(bits == 0 || (blocks && (bits == 8 || bits == 16)), V_RULE_VALUE);
  REQUIRE(vector_or_none(c, V_LINEAR_BIAS, w->shape[0]), V_RULE_TENSOR);
  return OK;
}

static v_rule check_glu(const v_op_check *c) {
  const v_slot_record *gate = slot(c, V_GLU_GATE);
  REQUIRE(gate->rows == out(c)->rows, V_RULE_ROWS);
  REQUIRE(c->op->uints[V_GLU_ACTIVATION] <= V_ACTIVATION_HARD_SWISH, V_RULE_VALUE);
  if (has_in(c, V_GLU_UP)) {
    REQUIRE(same_slot(gate, out(c)) && same_slot(slot(c, V_GLU_UP), out(c)), V_RULE_WIDTH);
    REQUIRE(!c->op->flags, V_RULE_VALUE);
  } else {
    REQUIRE(gate->width == (uint64_t)2 * out(c)->width, V_RULE_WIDTH);
    REQUIRE(c->op->out != c->op->ins[V_GLU_GATE], V_RULE_ALIAS);
  }
  return OK;
}

static v_rule check_rope(const v_op_check *c) {
  const uint32_t *u = c->op->uints;
  const uint32_t heads = u[V_ROPE_HEADS], dim = u[V_ROPE_HEAD_DIM], rot = u[V_ROPE_ROTARY_DIM];
  const v_slot_record *x = slot(c, V_ROPE_X);
  REQUIRE(same_slot(x, out(c)) && x->rows == V_ROWS_TOKENS, V_RULE_ROWS);
  REQUIRE(heads > 0 && dim > 0 && rot > 0 && rot <= dim && rot % 2 == 0, V_RULE_VALUE);
  /* Each factor is bounded first: heads * dim must not wrap around 2^64. */
  REQUIRE(heads <= x->width && dim <= x->width, V_RULE_WIDTH);
  REQUIRE((uint64_t)u[V_ROPE_OFFSET] + (uint64_t)heads * dim <= x->width, V_RULE_WIDTH);
  REQUIRE(vector_or_none(c, V_ROPE_INV_FREQ, rot / 2), V_RULE_TENSOR);
  return OK;
}

/* An earlier CACHE op writes what the op reads. */
static bool is_cached(const v_op_check *c) {
  const uint32_t *u = c->op->uints;
  for (const v_op_record *op = c->program->ops; op < c->op; op++) {
    if (op->kind == V_OP_CACHE && op->uints[V_CACHE_LAYER] == u[V_ATTENTION_CACHE] - 1) {
      return op->uints[V_CACHE_KV_HEADS] == u[V_ATTENTION_KV_HEADS] &&
             op->uints[V_CACHE_HEAD_DIM] == u[V_ATTENTION_HEAD_DIM];
    }
  }
  return false;
}

static v_rule check_attention(const v_op_check *c) {
  const v_op_record *op = c->op;
  const uint32_t heads = op->uints[V_ATTENTION_HEADS], kv = op->uints[V_ATTENTION_KV_HEADS],
                 dim = op->uints[V_ATTENTION_HEAD_DIM];
  REQUIRE(heads > 0 && kv > 0 && dim > 0 && heads % kv == 0, V_RULE_VALUE);
  REQUIRE(heads <= 4096 && dim <= 4096, V_RULE_VALUE);
  REQUIRE(out(c)->rows == V_ROWS_TOKENS, V_RULE_ROWS);
  REQUIRE(out(c)->width == heads * dim, V_RULE_WIDTH);
  const bool cached = op->uints[V_ATTENTION_CACHE] != 0;
  REQUIRE(has_in(c, V_ATTENTION_K) != cached && has_in(c, V_ATTENTION_V) != cached,
          V_RULE_REFERENCE);
  if (cached) {
    REQUIRE(op->flags & V_FLAG_CAUSAL, V_RULE_VALUE);
    REQUIRE(!op->uints[V_ATTENTION_K_OFFSET] && !op->uints[V_ATTENTION_V_OFFSET], V_RULE_VALUE);
    REQUIRE(is_cached(c), V_RULE_REFERENCE);
  }
  for (uint32_t i = V_ATTENTION_Q; i <= V_ATTENTION_V; i++) {
    if (!has_in(c, i)) continue;
    const uint32_t width = (i == V_ATTENTION_Q ? heads : kv) * dim;
    REQUIRE(slot(c, i)->rows == V_ROWS_TOKENS, V_RULE_ROWS);
    REQUIRE((uint64_t)op->uints[V_ATTENTION_Q_OFFSET + i] + width <= slot(c, i)->width,
            V_RULE_WIDTH);
    REQUIRE(op->out != op->ins[i], V_RULE_ALIAS);
  }
  if (has_tensor(c, V_ATTENTION_BIAS)) {
    const v_tensor_record *t = tensor(c, V_ATTENTION_BIAS);
    const uint32_t positions = c->program->header->max_positions;
    REQUIRE(t->format == V_FORMAT_F32 && t->ndim == 2 && t->shape[0] == heads, V_RULE_TENSOR);
    REQUIRE(t->shape[1] % 2 == 1 && positions > 0 && t->shape[1] >= 2 * positions - 1,
            V_RULE_TENSOR);
  }
  REQUIRE(op->floats[V_ATTENTION_SOFTCAP] >= 0, V_RULE_VALUE);
  return OK;
}

static v_rule check_pool(const v_op_check *c) {
  const v_slot_record *x = slot(c, V_POOL_X);
  REQUIRE(c->op->uints[V_POOL_MODE] <= V_POOL_WEIGHTED_MEAN, V_RULE_VALUE);
  REQUIRE(x->rows == V_ROWS_TOKENS && out(c)->rows == V_ROWS_SEQS, V_RULE_ROWS);
  REQUIRE((uint64_t)c->op->uints[V_POOL_OUT_OFFSET] + x->width <= out(c)->width, V_RULE_WIDTH);
  return OK;
}

static v_rule check_normalize(const v_op_check *c) {
  REQUIRE(same_slot(slot(c, V_NORMALIZE_X), out(c)), V_RULE_WIDTH);
  REQUIRE(c->op->floats[V_NORMALIZE_EPS] >= 0, V_RULE_VALUE);
  return OK;
}

static v_rule check_unary(const v_op_check *c) {
  REQUIRE(same_slot(slot(c, V_UNARY_X), out(c)), V_RULE_WIDTH);
  REQUIRE(c->op->uints[V_UNARY_ACTIVATION] <= V_ACTIVATION_HARD_SWISH, V_RULE_VALUE);
  return OK;
}

static v_rule check_binary(const v_op_check *c) {
  REQUIRE(same_slot(slot(c, V_BINARY_A), out(c)), V_RULE_WIDTH);
  REQUIRE(c->op->uints[V_BINARY_OP] <= V_BINARY_DIV, V_RULE_VALUE);
  REQUIRE(has_in(c, V_BINARY_B) != has_tensor(c, V_BINARY_CONSTANT), V_RULE_VALUE);
  if (has_in(c, V_BINARY_B)) {
    REQUIRE(same_slot(slot(c, V_BINARY_B), out(c)), V_RULE_WIDTH);
    REQUIRE(!c->op->flags, V_RULE_VALUE);
  }
  REQUIRE(vector_or_none(c, V_BINARY_CONSTANT, out(c)->width) ||
              vector_or_none(c, V_BINARY_CONSTANT, 1),
          V_RULE_TENSOR);
  return OK;
}

static v_rule check_cache(const v_op_check *c) {
  const v_op_record *op = c->op;
  const uint32_t kv = op->uints[V_CACHE_KV_HEADS], dim = op->uints[V_CACHE_HEAD_DIM];
  REQUIRE(kv > 0 && kv <= 4096 && dim > 0 && dim <= 4096, V_RULE_VALUE);
  REQUIRE(op->uints[V_CACHE_LAYER] < V_MAX_OPS, V_RULE_VALUE);
  for (uint32_t i = V_CACHE_K; i <= V_CACHE_V; i++) {
    REQUIRE(slot(c, i)->rows == V_ROWS_TOKENS, V_RULE_ROWS);
    REQUIRE((uint64_t)op->uints[V_CACHE_K_OFFSET + i] + kv * dim <= slot(c, i)->width,
            V_RULE_WIDTH);
  }
  for (const v_op_record *other = c->program->ops; other < op; other++) {
    REQUIRE(other->kind != V_OP_CACHE || other->uints[V_CACHE_LAYER] != op->uints[V_CACHE_LAYER],
            V_RULE_ALIAS);
  }
  return OK;
}

static v_rule check_rows(const v_op_check *c) {
  REQUIRE(slot(c, V_ROWS_X)->rows == V_ROWS_TOKENS && out(c)->rows == V_ROWS_PICKED, V_RULE_ROWS);
  REQUIRE(slot(c, V_ROWS_X)->width == out(c)->width, V_RULE_WIDTH);
  return OK;
}

v_rule v_check_op(const v_op_check *c) {
  switch ((v_op_kind)c->op->kind) {
    case V_OP_EMBED: return check_embed(c);
    case V_OP_NORM: return check_norm(c);
    case V_OP_LINEAR: return check_linear(c);
    case V_OP_GLU: return check_glu(c);
    case V_OP_ROPE: return check_rope(c);
    case V_OP_ATTENTION: return check_attention(c);
    case V_OP_POOL: return check_pool(c);
    case V_OP_NORMALIZE: return check_normalize(c);
    case V_OP_UNARY: return check_unary(c);
    case V_OP_BINARY: return check_binary(c);
    case V_OP_CACHE: return check_cache(c);
    case V_OP_ROWS: return check_rows(c);
  }
  return V_RULE_VALUE;
}
