// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/op_context.h"
#include "tensor/dtype.h"

namespace reprise::cli {

// What this machine can do at most with these threads, to hold results against.

// Reading memory that no cache holds, in 10^9 bytes per second.
double MeasureReadGigabytes(const OpContext& context);

// Matrix products of `dtype` whose operands stay in the caches, in 10^9 multiplies and adds per
// second.
double MeasureProductGigaflops(const OpContext& context, DType dtype);

}  // namespace reprise::cli
