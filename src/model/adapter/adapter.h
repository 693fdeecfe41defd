// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/low_rank_ops.h"
#include "kernels/op_context.h"
#include "model/adapter/adapter_file.h"
#include "model/placement/placement.h"
#include "model/tensor_plan.h"
#include "state/ids.h"

namespace reprise {

// What adapters need to know of a model: its weights by name, and how they lie in memory. Stays
// true while the weights themselves are gone and come back.
struct AdaptableModel {
  std::vector<PlannedTensor> tensors;      // of the plan; their targets are not looked at
  bool gguf = false;                       // the model came from a GGUF file
  std::vector<std::string> architectures;  // of GGUF files of this family
  std::string digest;                      // of the model's state
  Placement placement;                     // of its layers on its devices
};

// A LoRA adapter for one model, as the model's backend multiplies with it: a few narrow matrices
// for each of the weights that it changes, in the order of rows and columns that these have in
// memory.
//
// Its name is nothing: `digest` says what a state is that was computed with it, from the model's
// digest, the adapter's values and the scale. Two adapters with equal digests are one.
//
// Thread safety: immutable.
class Adapter {
 public:
  // `scale` is multiplied with the adapter's own. Where that is 0, weights are as they are; if it
  // is everywhere, the digest is the model's.
  // Fails with one sentence: a weight that the model does not have, or cannot have adapted, or of
  // another size. `contexts`: of the devices that the model lies on, home first; their backends may
  // be others than the model's, with the same kinds of matrices, so that an adapter is loaded
  // beside a running model.
  static Result<std::shared_ptr<const Adapter>> Load(const AdapterFile& file, double scale,
                                                     const AdaptableModel& model,
                                                     std::span<const OpContext> contexts);
  static Result<std::shared_ptr<const Adapter>> Load(const AdapterFile& file, double scale,
                                                     const AdaptableModel& model,
                                                     const OpContext& context) {
    return Load(file, scale, model, std::span(&context, 1));
  }

  // [tensors of the model's plan]; empty: the weight is as it is.
  std::span<const LowRank> products() const { return products_; }
  // Of the embedding; down: [vocabulary, rank], a row for each token. Empty: as it is.
  const LowRank& embedding() const { return embedding_; }
  const std::string& digest() const { return digest_; }
  size_t bytes() const { return bytes_; }
  // Equal for adapters of the same weights with the same ranks.
  uint64_t shape() const { return shape_; }
  DevicePtr<const std::byte> table() const { return table_.data(); }  // Backend::LowRankTable

  // An activated adapter (aLoRA) counts from the last of these tokens on that a prompt has, the
  // first of them included; before, state is that of the model. Empty: it counts everywhere.
  const std::vector<TokenId>& invocation() const { return invocation_; }
  // What stands for the first of them in the tokens that name state (state/virtual_tokens.h).
  TokenId mark() const { return mark_; }
  // The position from which on it counts for a request with that prompt; none: nowhere.
  std::optional<int32_t> CountsFrom(std::span<const TokenId> prompt) const;

 private:
  friend class AdapterLoader;
  Adapter() = default;

  std::vector<LowRank> products_;
  LowRank embedding_;
  std::string digest_;  // 32 hex digits
  size_t bytes_ = 0;
  std::vector<TokenId> invocation_;
  TokenId mark_ = 0;
  uint64_t shape_ = 0;
  DeviceBuffer table_;  // of products_
};

// Whether adapters may change a tensor by a product: a matrix of a layer that rows are multiplied
// with as they are, a stack of experts, or a head. Not so heads of which each has its own input.
bool IsAdaptable(const PlannedTensor& tensor);

}  // namespace reprise
