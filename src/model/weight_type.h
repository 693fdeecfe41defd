// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/tensor_plan.h"
#include "tensor/dtype.h"

namespace reprise {

// The type that a matrix stored as `stored` gets when weights are quantised to `wanted`: the head,
// which decides every token, keeps at least 6 bits; rows that are not whole blocks fall back to the
// nearest type with small blocks, or stay as they are.
DType QuantisedTypeFor(const PlannedTensor& tensor, DType stored, DType wanted);

}  // namespace reprise
