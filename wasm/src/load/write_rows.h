/* Copies host-neutral rows into their place in memory. */
#ifndef VOLERY_WRITE_ROWS_H
#define VOLERY_WRITE_ROWS_H
#include "core/model.h"

/* Bytes of one row in the parts of a tensor; 0 where the format has no such part. */
typedef struct {
  uint64_t data, scale, min;
} v_row_parts;
v_row_parts v_row_parts_of(const v_weight *w);

/* False when a code does not fit its format: 8-bit block codes have 7 bits, and rows of
 * I8R do not use -128. The ranges of the arguments have been checked. */
bool v_store_rows(v_weight *w, uint32_t row0, uint32_t rows, const uint8_t *data,
                  const uint8_t *scale, const uint8_t *min);

#endif
