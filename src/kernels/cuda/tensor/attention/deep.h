// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/attention/attention.h"

namespace reprise::cuda {

// Blocks of AttendDeep (attention.cuh) that run at the same time.
int64_t DeepBlocks(const KvView& kv);

}  // namespace reprise::cuda
