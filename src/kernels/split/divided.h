// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/matrix.h"
#include "tensor/division.h"

namespace reprise {

// How a matrix may be divided among devices: its rows by sections (none said: anywhere), or, of a
// stack of heads, its heads.
struct MatrixDivision {
  bool by_count = false;
  std::vector<Section> rows;
};

// A backend that divides them (kernels/split/split_backend.h).
class DividesMatrices {
 public:
  virtual ~DividesMatrices() = default;
  virtual Result<std::unique_ptr<PackedMatrix>> MakeDivided(const MatrixShape& shape,
                                                            const MatrixDivision& division) = 0;
};

}  // namespace reprise
