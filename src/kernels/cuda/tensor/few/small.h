// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/few/product_few.h"

namespace reprise::cuda {

// One row with matrices so small that every warp of the GPU has at most one piece of them: the
// layers of small models. False, and nothing is done: this call is no such.
bool RunSmallProducts(Stream stream, const FewProducts& call);

}  // namespace reprise::cuda
