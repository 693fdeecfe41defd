// SPDX-License-Identifier: Apache-2.0
#include "model/weight_type.h"

#include "weights/convert.h"

namespace reprise {
namespace {

double BitsPerWeight(DType dtype) {
  const DTypeTraits& traits = TraitsOf(dtype);
  return 8.0 * traits.block_bytes / traits.block_elements;
}

}  // namespace

DType QuantisedTypeFor(const PlannedTensor& tensor, DType stored, DType wanted) {
  const bool head =
      tensor.role == TensorRole::kHead || tensor.role == TensorRole::kEmbeddingAndHead;
  if (head && BitsPerWeight(wanted) < BitsPerWeight(DType::kQ6_K)) wanted = DType::kQ6_K;
  const DType fitting = FittingType(wanted, tensor.cols);
  return IsQuantised(wanted) && !IsQuantised(fitting) ? stored : fitting;
}

}  // namespace reprise
