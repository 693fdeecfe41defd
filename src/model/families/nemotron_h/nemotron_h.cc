// SPDX-License-Identifier: Apache-2.0
#include "model/families/nemotron_h/nemotron_h.h"

#include "weights/format/gguf_writer.h"

namespace reprise::nemotron_h {

NemotronH::NemotronH(const Config& config)
    : ResidualStack(config.decoder, config.vocabulary, {}), nemotron_(config) {
  for (int i = 0; i < config.decoder.layer_count; ++i) {
    AddBlock(i, "norm", "attn_norm");
    switch (config.types[size_t(i)]) {
      case BlockType::kMamba:
        AddWithState<Mamba2>(config.mamba);
        break;
      case BlockType::kAttention:
        AddWithState<Attention>(config.attention);
        break;
      case BlockType::kMlp:
        Add<GatedMlp>(config.mlp);
        break;
      case BlockType::kMoe:
        Add<MoeMlp>(config.moe);
        if (config.shared.hidden != 0) Add<GatedMlp>(config.shared);
        break;
    }
  }
}

std::string NemotronH::DescribeNumerics() const {
  return reprise::DescribeNumerics(nemotron_.mamba) + DescribeRouting(nemotron_.moe);
}

std::string_view NemotronH::gguf_architecture() const {
  return nemotron_.moe.experts != 0 ? "nemotron_h_moe" : "nemotron_h";
}

void NemotronH::DescribeGguf(GgufWriter* out) const {
  const std::string_view architecture = gguf_architecture();
  const std::string prefix = std::string(architecture) + ".";
  DescribeDecoder(config(), architecture, out);
  DescribeMamba2(nemotron_.mamba, architecture, out);
  // llama.cpp wants it for blocks that predict further tokens.
  out->Put<float>(prefix + "attention.layer_norm_epsilon", config().eps);
  std::vector<int32_t> widths;
  for (const BlockType type : nemotron_.types) {
    widths.push_back(type == BlockType::kMlp   ? int32_t(nemotron_.mlp.hidden)
                     : type == BlockType::kMoe ? int32_t(nemotron_.moe.hidden)
                                               : 0);
  }
  out->PutArray<int32_t>(prefix + "feed_forward_length", widths);
  if (nemotron_.moe.experts == 0) return;
  DescribeMoe(nemotron_.moe, architecture, out);
  const RoutingParams& routing = nemotron_.moe.routing;
  out->Put<uint32_t>(prefix + "expert_shared_feed_forward_length",
                     uint32_t(nemotron_.shared.hidden));
  out->Put<uint32_t>(prefix + "expert_shared_count", nemotron_.shared.hidden != 0 ? 1 : 0);
  out->Put<float>(prefix + "expert_weights_scale", routing.scale);
  out->Put<uint32_t>(prefix + "expert_group_count", uint32_t(routing.groups));
  out->Put<uint32_t>(prefix + "expert_group_used_count", uint32_t(routing.group_top_k));
}

}  // namespace reprise::nemotron_h
