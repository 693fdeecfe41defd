// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/vector.h"
#include "model/config/decoder.h"
#include "model/decoders/block_part.h"
#include "model/decoders/mtp_block.h"
#include "model/family.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// A decoder that is a list of blocks, x += scale * sum of parts(norm(x)): attention, scans,
// convolutions and feed-forward blocks in whatever order a family puts them.
class ResidualStack : public FamilyModel {
 public:
  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  void Run(const Step& home, const StepResults& results) const override;
  void Predict(const Step& step, const ConstRows& before,
               const StepResults& results) const override;

 protected:
  struct Traits {
    ValueForm norm_form = ValueForm::kPlain;
    float residual_scale = 1;
    bool rope = false;
  };
  ResidualStack(const DecoderConfig& config, const Vocabulary::Shape& vocabulary,
                const Traits& traits);

  // Starts a block with its norm, for example ("input_layernorm", "attn_norm"): names without
  // ".weight", which one family's GGUF files lack.
  void AddBlock(int layer, const char* hf_norm, const char* gguf_norm,
                const char* gguf_suffix = ".weight");
  // Adds a layer to the last block.
  template <typename Layer, typename Shape>
  void Add(const Shape& shape) {
    blocks_.back().parts.push_back(
        std::make_unique<LayerPart<Layer>>(Layer(shape, blocks_.back().layer)));
  }
  // The same for a layer with state, which is declared in the StateSpec.
  template <typename Layer, typename Shape>
  void AddWithState(const Shape& shape) {
    Layer layer(shape, blocks_.back().layer, card_.state.layers.size());
    card_.state.layers.push_back(layer.state());
    layer.AddCost(&card_.state);
    blocks_.back().parts.push_back(std::make_unique<LayerPart<Layer>>(std::move(layer)));
  }

  // Adds the block that predicts further tokens, which lies behind the last layer.
  void AddMtp(MtpShape shape);

  const DecoderConfig& config() const { return config_; }

 private:
  struct Block {
    int layer = 0;
    const char* hf_norm = nullptr;
    std::string gguf_norm;
    Vector norm;
    std::vector<std::unique_ptr<BlockPart>> parts;
  };
  struct Lane;

  DecoderConfig config_;
  Traits traits_;
  Vocabulary vocabulary_;
  std::vector<Block> blocks_;
  std::optional<Rotary> rotary_;
  std::unique_ptr<MtpBlock> mtp_;  // or null
};

}  // namespace reprise
