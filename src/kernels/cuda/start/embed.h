// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <variant>

#include "kernels/cuda/quantised/layout.h"
#include "kernels/cuda/rows/rope.h"
#include "kernels/cuda/start/arrays.h"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/view.h"

namespace reprise::cuda {

// out[t] = row tokens[t] of the table, as f32: exactly tensor/dequantise.cc. Of tokens that are no
// row of the table, row 0.
struct EmbeddedRows {
  std::variant<const float*, HalfMatrix, QuantisedMatrix> table;
  const int32_t* tokens = nullptr;
  View out;
  int32_t table_rows = std::numeric_limits<int32_t>::max();
};
void Embed(Stream stream, const EmbeddedRows& rows);

// The first kernel of a step: brings the arrays, and meanwhile embeds the rows and makes their
// angles, if there are any, from tokens and positions in the arrays, which it reads at the host.
// The next one starts at once, and waits; those behind it read the arrays before they wait, so it
// must not let them start before that (hold_next of products).
void StartStep(Stream stream, const HostArrays& arrays, const EmbeddedRows& rows,
               const AngledRows& angles);

}  // namespace reprise::cuda
