// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "kernels/reference/gpu/tensor_core.h"

namespace reprise::cuda {

// The specification of the tensor cores of the GPU that this thread uses (UseGpu), found by what
// they compute: 10,000 tiles, once a GPU, in some milliseconds. An error where no specification
// holds: what they compute is not known then, and nothing may be promised of it.
const Result<reference::TensorCore>& ThisTensorCore();

}  // namespace reprise::cuda
