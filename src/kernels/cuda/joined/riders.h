// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "kernels/cuda/view.h"

// Ops that ride along with products: with those of few rows what comes before and what comes
// behind, with others what makes the rows that they round.
namespace reprise::cuda {

// RMS norm of the rows before they are rounded or quantised.
struct InputNorm {
  const float* weight = nullptr;  // [cols], or null: no norm
  float eps = 0;
  View h;  // gets the normed rows
};

enum class OutputOp : uint8_t {
  kNone,
  kAdd,     // sum += the first product's output
  kSwiGlu,  // products are {up, gate}: gate's place gets silu(gate) * up
  kGeGlu,
};
inline constexpr bool IsGate(OutputOp op) {
  return op == OutputOp::kSwiGlu || op == OutputOp::kGeGlu;
}

// What a gate lets through: y = silu(gate) * up, or gelu; y may be gate or up.
struct GatedRows {
  OutputOp op = OutputOp::kSwiGlu;
  View gate, up, y;
};
// y = rms_norm(x), where `added` has data behind x += added.
struct NormedRows {
  View x, added;
  const float* weight = nullptr;  // [cols]
  float eps = 0;
  View y;
};
using MadeRows = std::variant<GatedRows, NormedRows>;
inline const View& ResultOf(const MadeRows& rows) {
  return std::visit([](const auto& one) -> const View& { return one.y; }, rows);
}

}  // namespace reprise::cuda
