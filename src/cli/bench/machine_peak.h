// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kernels/op_context.h"
#include "tensor/dtype.h"

namespace reprise::cli {

// What this machine can do with these threads, to hold results against, measured here and now; and
// what it could do at most by the clocks of a device that tells them.
struct Peak {
  double giga = 0;        // 10^9 a second
  const char* what = "";  // "measured here for reading as much memory"
  double by_clock = 0;    // 10^9 a second, or 0: not told
};

// Bytes read. `bytes` is how many the work reads again and again: caches may hold them.
Peak ReadPeak(const OpContext& context, size_t bytes);

// Multiplies and adds on the unit that makes products with weights of `dtype`.
Peak ProductPeak(const OpContext& context, DType dtype);

}  // namespace reprise::cli
