// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/op_context.h"
#include "model/digest.h"
#include "model/model.h"
#include "model/placement/placement.h"
#include "model/tensor_plan.h"
#include "model/weight_mix.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"
#include "weights/progress.h"

namespace reprise {

class Devices;

struct LoadOptions {
  // Converts 16- and 32-bit matrices to these types on the way; tensors that are quantised in the
  // file stay as they are.
  std::optional<WeightMix> weights;
  DType kv = DType::kF16;       // Backend::holds
  Progress::Listener progress;  // of the bytes of the file
  // Tokens of the longest sequence that will be asked for; 0: as the model says. Where a model has
  // rotary regimes for short and long contexts (LongRoPE), this chooses, once and for all. The
  // state of such a sequence has to fit beside the weights.
  int64_t context_tokens = 0;
  // Memory that may be used; 0: what the machine has available.
  size_t memory_max = 0;
  bool tower = false;  // what looks at pictures as well, where there is one
  // The GGUF file of the tower of a GGUF model, which has none in itself. Null: none. Where
  // `mmproj_needed` is false, a file that is not the tower of this model is passed over.
  const Checkpoint* mmproj = nullptr;
  bool mmproj_needed = true;
  bool mtp = false;    // its block that predicts further tokens as well, where there is one
  // A file that holds such a block alone, for a model without; null: none.
  const Checkpoint* mtp_file = nullptr;
  // The devices that it lies on, if they are several: the context is that of the first, and they
  // outlive the model. Where it lies on them; hears what came of it, before anything is read.
  Devices* devices = nullptr;
  PlacementOptions placement;
  std::function<void(const Placement&)> placed;
};

// Loads a model of any family. Before the first weight is touched everything that can be known is
// checked: the configuration, the presence, type and shape of every tensor, and that the weights
// fit into memory, those of each device into its own. Pages of the file are released as soon as
// they are packed.
Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, const OpContext& context,
                                         const LoadOptions& options);

// Loads the tensors of a plan that is no model by itself (a tower), adds them to the digest and
// uploads their vectors. `weight_bytes`: of all of it, in memory.
Result<DeviceBuffer> LoadPlan(const Checkpoint& checkpoint, const OpContext& context,
                              const TensorPlan& plan, Digest* digest, size_t* weight_bytes);

// What stands before "embed_tokens.weight" in a Hugging Face checkpoint.
std::string HfTensorPrefix(const Checkpoint& checkpoint);

}  // namespace reprise
