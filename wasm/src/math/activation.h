/* The activations of program.h, applied in place to a run of floats. */
#ifndef VOLERY_ACTIVATION_H
#define VOLERY_ACTIVATION_H
#include "program.h"
#include "core/base.h"

void v_activate(v_activation kind, float *x, uint32_t n);

#endif
