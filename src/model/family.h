// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/devices/devices.h"
#include "model/config/reader.h"
#include "model/model.h"
#include "model/tensor_plan.h"
#include "tensor/dtype.h"

namespace reprise {

class GgufWriter;

// A model as its family builds it: first from the configuration alone, then its tensors are
// declared and filled, then it is complete.
class FamilyModel : public Model {
 public:
  // Declares every tensor, with pointers into this object; called once.
  virtual void DeclareTensors(TensorPlan* plan) = 0;
  // Called when the tensors are in place.
  virtual void CompleteWeights() {}
  // Whatever besides the tensors and the state layout decides the bits of the state.
  virtual std::string DescribeNumerics() const = 0;
  // `general.architecture` of a GGUF file of this model; empty: the first of its family.
  virtual std::string_view gguf_architecture() const { return {}; }
  // The metadata of a GGUF file of this model, under "<architecture>.".
  virtual void DescribeGguf(GgufWriter* out) const = 0;

  ModelCard* mutable_card() { return &card_; }
  // Keeps what adapters need to know of the plan. REQUIRES: the card is complete.
  void Describe(const TensorPlan& plan, bool gguf, std::span<const std::string_view> gguf_types);
  // Before its tensors are loaded. State lies where its layer does, or with its heads.
  void SetPlacement(Devices* devices, Placement placement) {
    devices_ = devices;
    const bool split = devices != nullptr && devices->split();
    for (LayerState& layer : card_.state.layers) {
      layer.memory = split ? LayerState::kAll : placement.OfLayer(layer.layer);
    }
    if (split) card_.state.memories = int(devices->memory().count());
    placement_ = std::move(placement);
  }
  // The memory of its vectors on one of its devices, uploaded.
  void HoldVectors(DeviceBuffer memory) { vectors_.push_back(std::move(memory)); }
  void HoldTower(std::shared_ptr<const VisionTower> tower) { tower_ = std::move(tower); }

 private:
  std::vector<DeviceBuffer> vectors_;
};

// A geometry for `reprise synth`: the config.json of a published model.
struct PublishedSize {
  std::string_view name;  // "Qwen3-0.6B"
  std::string_view config;
};

// Everything the program knows about a family. One folder of families/ defines one of these,
// `k_<folder>`; the table of all is generated from the folders.
struct Family {
  std::string_view name;
  std::span<const std::string_view> hf_types;    // `model_type` in config.json
  std::span<const std::string_view> gguf_types;  // `general.architecture`; the first is written
  std::span<const PublishedSize> published;
  // `kv` is the type of K/V in memory: kF16 or kF32.
  Result<std::unique_ptr<FamilyModel>> (*make)(ConfigReader* config, DType kv);
};

extern const Family* const kFamilies[];  // ends with null

// A model of the checkpoint as `family` makes it; with `mtp` with its block that predicts further
// tokens, if the checkpoint has all of one, or else `mtp_file`. If not, card().mtp_absent says why.
struct MakeRequest {
  const Family* family = nullptr;
  DType kv = DType::kF16;
  int64_t context_tokens = 0;  // ConfigReader::set_context_tokens
  bool mtp = false;
  const Checkpoint* mtp_file = nullptr;  // holds a block alone; null: none
};
// `config`: a reader of the checkpoint, that was asked what the model needed to know.
struct MadeModel {
  std::unique_ptr<FamilyModel> model;
  std::unique_ptr<ConfigReader> config;
  const Checkpoint* mtp = nullptr;  // that has the tensors of the block; null: there is none
};
Result<MadeModel> MakeModel(const Checkpoint& checkpoint, const MakeRequest& request);

// The family of a checkpoint's architecture, or kUnimplemented with its name and the known ones.
Result<const Family*> FindFamily(bool gguf, std::string_view architecture);
Result<const Family*> FindFamilyByName(std::string_view name);

}  // namespace reprise
