// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/status.h"
#include "kernels/op_context.h"
#include "model/model.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"
#include "weights/progress.h"

namespace reprise {

struct LoadOptions {
  // Quantises 16- and 32-bit matrices to this type on the way; tensors that are quantised in the
  // file stay as they are.
  std::optional<DType> weights;
  DType kv = DType::kF16;       // or kF32
  Progress::Listener progress;  // of the bytes of the file
  // Memory that may be used; 0: what the machine has available.
  size_t memory_max = 0;
};

// Loads a model of any family. Before the first weight is touched everything that can be known is
// checked: the configuration, the presence, type and shape of every tensor, and that the weights
// fit into memory. Pages of the file are released as soon as they are packed.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, const OpContext& context,
                                         const LoadOptions& options);

}  // namespace reprise
