/* How the relaxed dot product takes signed 8-bit weights.
 *
 * Its second operand is specified for 0..127 only; what an engine does with the eighth bit
 * depends on the processor, but is the same for all of its code. So it is asked once, when
 * a model is created, and the weights are packed to suit. Every way gives the same
 * integers: the plain SIMD build and all processors agree on the bits of the result. */
#ifndef VOLERY_SIGNED_DOT_H
#define VOLERY_SIGNED_DOT_H
#include "core/model.h"

typedef enum {
  /* As signed numbers (dot products of Arm; plain SIMD): codes are used as they are. */
  V_SIGNED_DIRECT,
  /* As unsigned ones (VNNI of x86): q + 128 is packed, and 128 times the sum of the
   * activations is taken off. */
  V_SIGNED_SHIFTED,
  /* Neither, or with saturation (pmaddubsw): q + 128 again, as two nibbles with a dot product
   * each. Engines of this kind make the dot product of sums of pairs in 16 bits, so nibbles
   * are best added up there (block_dot.h). */
  V_SIGNED_SPLIT,
} v_signed_dot;

/* What this engine does. */
v_signed_dot v_probe_signed_dot(void);

/* The model's, as probed when it was created. */
V_INLINE v_signed_dot v_signed_dot_now(void) { return (v_signed_dot)v_the_model.signed_dot; }

/* What packed codes are, exclusive-or'ed with this, are those of the file. */
V_INLINE uint8_t v_signed_flip(void) { return v_signed_dot_now() == V_SIGNED_DIRECT ? 0 : 0x80; }

#endif
