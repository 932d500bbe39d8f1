/* The activations of program.h on a run of n floats; `to` may be `x`. */
#ifndef VOLERY_ACTIVATION_H
#define VOLERY_ACTIVATION_H
#include "program.h"
#include "core/base.h"

void v_activate(v_activation kind, const float *x, float *to, uint32_t n);

#endif
