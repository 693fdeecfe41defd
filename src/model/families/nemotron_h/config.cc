// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "model/families/nemotron_h/nemotron_h.h"

namespace reprise::nemotron_h {
namespace {

constexpr Mamba2Keys kMambaKeys = {"ssm_state_size", "mamba_num_heads", "mamba_head_dim",
                                   "n_groups",       "conv_kernel",     "mamba_proj_bias",
                                   "use_conv_bias"};

BlockType TypeOf(const std::string& name, ConfigReader* reader) {
  if (name == "M" || name == "mamba" || name == "linear_attention") return BlockType::kMamba;
  if (name == "*" || name == "attention" || name == "full_attention") return BlockType::kAttention;
  if (name == "-" || name == "mlp") return BlockType::kMlp;
  if (name == "E" || name == "moe") return BlockType::kMoe;
  reader->Refuse("block type '" + name + "' is not supported for nemotron_h");
  return BlockType::kMlp;
}

// GGUF: blocks with K/V heads attend, blocks with a feed-forward width are such, the others scan.
void ReadGgufTypes(ConfigReader* reader, Config* config) {
  const DecoderConfig& decoder = config->decoder;
  const auto widths = reader->Ints({"", "feed_forward_length"}, 4096, {0, kAnySize.max});
  for (size_t i = 0; i < size_t(decoder.layer_count); ++i) {
    const std::string router = "blk." + std::to_string(i) + ".ffn_gate_inp.weight";
    if (reader->FindTensor({"", router}) != nullptr) {
      config->types.push_back(BlockType::kMoe);
    } else if (i < widths.size() && widths[i] > 0) {
      config->types.push_back(BlockType::kMlp);
      if (config->mlp.hidden != 0 && config->mlp.hidden != widths[i]) {
        reader->Refuse("feed-forward blocks of different widths are not supported");
      }
      config->mlp.hidden = widths[i];
    } else {
      const bool attends = decoder.attends.empty() || decoder.attends[i];
      config->types.push_back(attends ? BlockType::kAttention : BlockType::kMamba);
    }
  }
}

void ReadTypes(ConfigReader* reader, Config* config) {
  if (reader->gguf()) return ReadGgufTypes(reader, config);
  std::vector<std::string> names = reader->Texts({"layers_block_type", ""}, 4096);
  if (names.empty()) {
    for (const char c : reader->Text({"hybrid_override_pattern", ""}, "")) {
      names.emplace_back(1, c);
    }
  }
  for (const std::string& name : names) config->types.push_back(TypeOf(name, reader));
  if (names.size() != size_t(config->decoder.layer_count)) {
    reader->Refuse("layers_block_type does not have one entry per layer");
    config->types.resize(size_t(config->decoder.layer_count), BlockType::kMlp);
  }
  config->mlp.hidden = reader->Int({"intermediate_size", ""}, kAnySize);
}

void ReadExperts(ConfigReader* reader, Config* config) {
  const DecoderConfig& decoder = config->decoder;
  MoeShape& moe = config->moe;
  moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain(), ExpertScore::kSigmoid);
  moe.activation = ExpertActivation::kReluSquared;
  ReadExpertGroups(reader, &moe);
  if (reader->Int({"moe_latent_size", "moe_latent_size"}, {0, kAnySize.max}, 0) != 0) {
    reader->Refuse("moe_latent_size is not supported for nemotron_h");
  }
  moe.names.router = "mixer.gate.weight";
  moe.names.selection_bias = "mixer.gate.e_score_correction_bias";
  moe.names.experts = "mixer.experts";
  moe.names.gate_up = "mixer.experts.up_proj";
  moe.names.all_down = "mixer.experts.down_proj";
  MlpShape& shared = config->shared;
  shared = config->mlp;
  shared.hf = "mixer.shared_experts";
  shared.gguf = "_shexp";
  // The width of all of them together, however many there are said to be.
  shared.hidden =
      reader->Int({"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
                  {0, kAnySize.max}, 0);
}

}  // namespace

Config ReadConfig(ConfigReader* reader, DType kv) {
  Config config;
  DecoderConfig& decoder = config.decoder;
  reader->AddDefaults(R"({"head_dim": 128, "moe_shared_expert_intermediate_size": 7688})");
  const bool older = reader->Has({"rms_norm_eps", ""}) && !reader->Has({"layer_norm_epsilon", ""});
  ReadStream(reader,
             {older ? "rms_norm_eps" : "layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}, 0,
             &decoder);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, false, &decoder);
  config.mlp.dim = decoder.dim;
  config.mlp.activation = MlpActivation::kReluSquared;
  config.mlp.residual_gain = decoder.residual_gain();
  config.mlp.hf = "mixer";
  ReadTypes(reader, &config);
  decoder.attends.clear();
  for (const BlockType type : config.types)
    decoder.attends.push_back(type == BlockType::kAttention);
  const std::string gate = reader->Text({"mamba_hidden_act", ""}, "silu");
  if (gate != "silu" && gate != "swish") {
    reader->Refuse("mamba_hidden_act '" + gate + "' is not supported for nemotron_h (only silu)");
  }
  const std::string activation = reader->Text({"mlp_hidden_act", ""}, "relu2");
  if (activation != "relu2") {
    reader->Refuse("activation '" + activation + "' is not supported for nemotron_h (only relu2)");
  }
  for (const char* key : {"attention_bias", "mlp_bias", "use_bias"}) {
    if (reader->Bool({key, ""}, false)) {
      reader->Refuse(std::string(key) + " is not supported for nemotron_h");
    }
  }
  if (reader->Int({"sliding_window", ""}, {0, int64_t{1} << 40}, 0) != 0) {
    reader->Refuse("sliding_window is not supported for nemotron_h");
  }
  config.attention = MakeAttentionShape(decoder, kv);
  config.attention.hf = "mixer";
  config.attention.rotary_pairs_in_gguf = true;
  config.mamba.dim = decoder.dim;
  config.mamba.eps = decoder.eps;
  config.mamba.residual_gain = decoder.residual_gain();
  ReadMamba2Shape(reader, kMambaKeys, &config.mamba);
  if (config.mamba.step_min > 0 || !std::isinf(config.mamba.step_max)) {
    reader->Refuse("time_step_limit is not supported for nemotron_h");  // its references disagree
  }
  if (std::find(config.types.begin(), config.types.end(), BlockType::kMoe) != config.types.end()) {
    ReadExperts(reader, &config);
  }
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps};
  config.vocabulary.hf_embedding = "embeddings.weight";
  config.vocabulary.hf_norm = "norm_f";
  return config;
}

}  // namespace reprise::nemotron_h
