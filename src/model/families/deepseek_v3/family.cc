// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "kernels/reference/math.h"
#include "model/decoders/residual_stack.h"
#include "model/layers/mla.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"deepseek_v3", "kimi_k2", "glm4_moe_lite", "deepseek_v2"};
constexpr std::string_view kGgufTypes[] = {"deepseek2"};

constexpr PublishedSize kPublished[] = {
    {"GLM-4.7-Flash", R"({"model_type": "glm4_moe_lite", "hidden_size": 2048,
      "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47,
      "num_attention_heads": 20, "num_key_value_heads": 20, "n_shared_experts": 1,
      "n_routed_experts": 64, "num_experts_per_tok": 4, "routed_scaling_factor": 1.8,
      "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "v_head_dim": 256,
      "qk_nope_head_dim": 192, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
      "vocab_size": 154880, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0, "tie_word_embeddings": false})"},
    {"DeepSeek-V2-Lite", R"({"model_type": "deepseek_v2", "hidden_size": 2048,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
      "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
      "n_routed_experts": 64, "num_experts_per_tok": 6, "routed_scaling_factor": 1.0,
      "kv_lora_rank": 512, "q_lora_rank": null, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "qk_nope_head_dim": 128, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
      "norm_topk_prob": false, "first_k_dense_replace": 1, "vocab_size": 102400,
      "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
      "tie_word_embeddings": false,
      "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}})"},
    {"DeepSeek-V3", R"({"model_type": "deepseek_v3", "hidden_size": 7168,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
      "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
      "n_routed_experts": 256, "num_experts_per_tok": 8, "routed_scaling_factor": 2.5,
      "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4, "norm_topk_prob": true,
      "first_k_dense_replace": 3, "vocab_size": 129280, "max_position_embeddings": 163840,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})"},
    {"Kimi-K2", R"({"model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432,
      "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64,
      "num_key_value_heads": 64, "n_shared_experts": 1, "n_routed_experts": 384,
      "num_experts_per_tok": 8, "routed_scaling_factor": 2.827, "kv_lora_rank": 512,
      "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
      "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "first_k_dense_replace": 1,
      "vocab_size": 163840, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "rope_theta": 50000.0, "tie_word_embeddings": false,
      "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})"},
};

// What GGUF files of this architecture hold of mscale_all_dim.
constexpr double kLogMultiplier = 0.1;

// The regime in those terms, as loud as it is.
RopeConfig AsInGguf(const RopeConfig& rope) {
  if (rope.mscale == 0) return rope;
  RopeConfig published = rope;
  published.attention_factor = 0;
  published.mscale = 1;
  const double factor = double(RopeMagnitude(rope)) / double(RopeMagnitude(published));
  published.mscale_all *= kLogMultiplier;
  if (factor != 1) published.attention_factor = factor * double(RopeMagnitude(published));
  return published;
}

struct Config {
  DecoderConfig decoder;
  MlaShape attention;
  MlpShape mlp;
  MoeShape moe;
  int dense_layers = 0;  // the first; the others have experts
  int shared_experts = 0;
  bool mtp = false;
};

class DeepseekV3 final : public ResidualStack {
 public:
  explicit DeepseekV3(const Config& config)
      : ResidualStack(config.decoder,
                      {config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                       config.decoder.eps},
                      {.rope = true}),
        deepseek_(config) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "input_layernorm", "attn_norm");
      AddWithState<MlaAttention>(config.attention);
      AddBlock(i, "post_attention_layernorm", "ffn_norm");
      if (i < config.dense_layers) {
        Add<GatedMlp>(config.mlp);
      } else {
        Add<MoeMlp>(config.moe);
      }
    }
    if (!config.mtp) return;
    MtpShape mtp;
    mtp.dim = config.decoder.dim;
    mtp.attention = config.attention;
    mtp.moe = std::make_unique<const MoeShape>(config.moe);
    mtp.eps = config.decoder.eps;
    mtp.hf.clear();
    mtp.gguf_mlp_norm = "ffn_norm.weight";
    AddMtp(std::move(mtp));
  }

  std::string DescribeNumerics() const override {
    char text[64];
    std::snprintf(text, sizeof(text), " queries %.9g ", double(deepseek_.attention.q_scale));
    return config().rope.Describe() + text + DescribeRouting(deepseek_.moe);
  }

  void DescribeGguf(GgufWriter* out) const override {
    const std::string prefix = std::string(kGgufTypes[0]) + ".";
    const auto put = [&](const char* key, int64_t value) {
      out->Put<uint32_t>(prefix + key, uint32_t(value));
    };
    DecoderConfig decoder = config();
    if (deepseek_.mtp) {  // GGUF counts the block
      ++decoder.layer_count;
      put("nextn_predict_layers", 1);
    }
    DescribeStream(decoder, kGgufTypes[0], out);
    put("feed_forward_length", config().hidden);
    put("attention.head_count_kv", 1);
    DescribeMla(deepseek_.attention, kGgufTypes[0], out);
    DescribeRope(AsInGguf(config().rope), prefix, out);
    DescribeMoe(deepseek_.moe, kGgufTypes[0], out);
    DescribeExpertGroups(deepseek_.moe, prefix, out);
    put("expert_shared_count", deepseek_.shared_experts);
    put("leading_dense_block_count", deepseek_.dense_layers);
  }

 private:
  Config deepseek_;
};

// The regime of YaRN also makes the scores larger: mscale_all_dim counts twice.
void ReadPositions(ConfigReader* reader, Config* config) {
  RopeConfig& rope = config->decoder.rope;
  MlaShape& attention = config->attention;
  rope = ReadRopeConfig(reader, attention.rope_dim);
  if (reader->Int({"head_dim", ""}, {0, 1 << 20}, attention.rope_dim) != attention.rope_dim) {
    reader->Refuse("head_dim other than qk_rope_head_dim is not supported for deepseek_v3");
  }
  if (!reader->Bool({"rope_interleave", ""}, true)) {
    reader->Refuse("rope_interleave false is not supported for deepseek_v3");
  }
  attention.rotary_pairs = true;
  if (reader->Number({"", "attention.temperature_scale"}, {0, 1e3}, 0.0) != 0) {
    reader->Refuse("attention.temperature_scale (Mistral Large 3) is not supported");
  }
  const bool yarn = rope.scaling == RopeConfig::Scaling::kYarn;
  if (!yarn && rope.scaling != RopeConfig::Scaling::kNone) {
    reader->Refuse("deepseek_v3 has no rope_type but default and yarn");
  }
  if (!yarn) return;
  for (const char* place : {"rope_parameters.", "rope_scaling."}) {
    const std::string all = std::string(place) + "mscale_all_dim";
    if (rope.mscale == 0 && reader->Number({all, ""}, {0, 1e3}, 0.0) != 0) {
      reader->Refuse("mscale_all_dim without mscale is not supported for deepseek_v3");
    }
  }
  if (rope.mscale_all == 0) return;
  if (reader->gguf()) {
    RopeConfig read = rope;
    rope.mscale_all /= kLogMultiplier;
    RopeConfig meant = rope;
    read.attention_factor = meant.attention_factor = 0;
    rope.attention_factor *= double(RopeMagnitude(meant)) / double(RopeMagnitude(read));
  }
  const double louder =
      rope.factor <= 1 ? 1 : 0.1 * rope.mscale_all * reference::LogDouble(rope.factor) + 1;
  attention.q_scale = float(louder * louder);
}

bool IsType(ConfigReader* reader, std::string_view type) {
  return !reader->gguf() && reader->Text({"model_type", ""}, "") == type;
}
bool IsLite(ConfigReader* reader) { return IsType(reader, "glm4_moe_lite"); }

// DeepSeek V2: scores by softmax, and the best of them as they are.
bool IsV2(ConfigReader* reader, int64_t vocab_size) {
  // Files of GLM-4.7-Flash do not say what its vocabulary gives away.
  constexpr int64_t kFlashVocabulary = 154880;
  constexpr int64_t kSoftmax = 1;
  if (!reader->gguf()) return IsType(reader, "deepseek_v2");
  const int64_t gating = reader->Int({"", "expert_gating_func"}, {0, 255}, 0);
  return gating == kSoftmax || (gating == 0 && vocab_size != kFlashVocabulary);
}

// How many layers have no experts.
int ReadDenseLayers(ConfigReader* reader, int layer_count) {
  if (!IsLite(reader)) {
    return int(reader->Int({"first_k_dense_replace", "leading_dense_block_count"}, {0, 4096},
                           reader->gguf() ? 0 : 3));
  }
  const auto types = reader->Texts({"mlp_layer_types", ""}, 4096);
  if (types.empty()) return 1;
  const auto is_dense = [](const std::string& type) { return type == "dense"; };
  const auto first = std::find_if_not(types.begin(), types.end(), is_dense);
  if (types.size() != size_t(layer_count) ||
      !std::all_of(first, types.end(), [](const std::string& type) { return type == "sparse"; })) {
    reader->Refuse(
        "mlp_layer_types other than first 'dense', then 'sparse', one entry per layer, "
        "is not supported");
  }
  return int(first - types.begin());
}

void ReadChoice(ConfigReader* reader, bool v2, MoeShape* moe) {
  if (!v2) {
    moe->names.selection_bias = "mlp.gate.e_score_correction_bias";
    return ReadExpertGroups(reader, moe);
  }
  // Transformers takes no notice of norm_topk_prob, nor of groups where it chooses greedily.
  const std::string method = reader->Text({"topk_method", ""}, "greedy");
  const bool grouped = reader->Int({"", "expert_group_count"}, {0, 4096}, 1) > 1;
  if (method != "greedy" || grouped) {
    reader->Refuse("topk_method '" + (grouped ? "group_limited_greedy" : method) +
                   "' is not supported for deepseek_v2 (known: greedy)");
  }
  if (reader->Bool({"mlp_bias", ""}, false)) {
    reader->Refuse("mlp_bias is not supported for deepseek_v2");
  }
  SetNormalised(reader, false, moe);
  moe->routing.scale =
      float(reader->Number({"routed_scaling_factor", "expert_weights_scale"}, {1e-6, 1e6}, 1.0));
}

void ReadExperts(ConfigReader* reader, Config* config) {
  const DecoderConfig& decoder = config->decoder;
  const bool v2 = IsV2(reader, decoder.vocab_size);
  reader->AddDefaults(
      v2 ? R"({"routed_scaling_factor": 1.0, "n_shared_experts": 2, "first_k_dense_replace": 0,
               "moe_intermediate_size": 1407, "n_routed_experts": 64})"
      : IsLite(reader) ? R"({"routed_scaling_factor": 1.8})"
                       : R"({"routed_scaling_factor": 2.5})");
  MoeShape& moe = config->moe;
  moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain(),
                     v2 ? ExpertScore::kSoftmax : ExpertScore::kSigmoid);
  ReadChoice(reader, v2, &moe);
  config->shared_experts =
      int(reader->Int({"n_shared_experts", "expert_shared_count"}, {0, 64}, 1));
  moe.shared_hidden = config->shared_experts * moe.hidden;
  moe.names.shared = "mlp.shared_experts";
  config->dense_layers = ReadDenseLayers(reader, decoder.layer_count);
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  Config config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  config.mlp.dim = config.attention.dim = decoder.dim;
  config.mlp.hidden = decoder.hidden;
  config.mlp.residual_gain = config.attention.residual_gain = decoder.residual_gain();
  config.attention.kv = kv;
  ReadMlaShape(reader, &config.attention);
  ReadPositions(reader, &config);
  ReadExperts(reader, &config);
  config.mtp = ReadsMtpLayer(reader);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<DeepseekV3>(config));
}

}  // namespace

extern const Family k_deepseek_v3;
const Family k_deepseek_v3 = {"deepseek_v3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
