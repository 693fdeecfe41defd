// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/families/kimi_linear/key_delta.h"
#include "model/layers/mla.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"kimi_linear"};
constexpr std::string_view kGgufTypes[] = {"kimi-linear"};

constexpr PublishedSize kPublished[] = {
    {"Kimi-Linear-48B-A3B", R"({"model_type": "kimi_linear", "hidden_size": 2304,
      "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 27,
      "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512,
      "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "mla_use_nope": true, "num_experts": 256, "num_experts_per_token": 8,
      "num_shared_experts": 1, "num_expert_group": 1, "topk_group": 1,
      "first_k_dense_replace": 1, "moe_renormalize": true, "routed_scaling_factor": 2.446,
      "moe_router_activation_func": "sigmoid", "rms_norm_eps": 1e-5, "vocab_size": 163840,
      "model_max_length": 1048576, "tie_word_embeddings": false,
      "linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10,
        11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26]}})"},
};

struct Config {
  DecoderConfig decoder;
  KeyDeltaShape delta;
  MlaShape attention;
  MoeShape moe;
  std::vector<bool> recurrent;  // per layer
  std::vector<bool> sparse;     // per layer
};

// The name Transformers uses, or that of the checkpoints' own code.
int64_t ReadDelta(ConfigReader* reader, const char* key, const char* original, const char* gguf,
                  IntRange range) {
  const std::string own = std::string("linear_attn_config.") + original;
  return reader->Int({reader->Has({own, ""}) ? own : std::string(key), gguf}, range);
}

// layer_types, or the one-based lists of linear_attn_config; in GGUF files layers without K/V
// heads.
void ReadLayers(ConfigReader* reader, Config* config) {
  const size_t count = size_t(config->decoder.layer_count);
  config->recurrent.assign(count, false);
  if (reader->gguf()) {
    const auto heads = reader->Ints({"", "attention.head_count_kv"}, 4096, {0, 4096});
    if (heads.size() < count) reader->Refuse("kimi-linear needs K/V heads for every layer");
    for (size_t i = 0; i < std::min(count, heads.size()); ++i) config->recurrent[i] = heads[i] == 0;
    return;
  }
  const auto types = reader->Texts({"layer_types", ""}, 4096);
  const auto listed =
      reader->Ints({"linear_attn_config.kda_layers", ""}, 4096, {1, int64_t(count)});
  if (!types.empty() && types.size() != count) {
    reader->Refuse("layer_types does not have one entry per layer");
  }
  for (size_t i = 0; i < std::min(count, types.size()); ++i) {
    if (types[i] != "linear_attention" && types[i] != "full_attention") {
      reader->Refuse("layer type '" + types[i] + "' is not supported for kimi_linear");
    }
    config->recurrent[i] = types[i] == "linear_attention";
  }
  if (types.empty()) {
    for (const int64_t layer : listed) config->recurrent[size_t(layer - 1)] = true;
  }
}

void ReadExperts(ConfigReader* reader, Config* config) {
  const DecoderConfig& decoder = config->decoder;
  MoeShape& moe = config->moe;
  const std::string score = reader->Text({"moe_router_activation_func", ""}, "sigmoid");
  const int64_t gating = reader->Int({"", "expert_gating_func"}, {1, 2}, 2);
  if (score != "sigmoid" && score != "softmax") {
    reader->Refuse("router activation '" + score + "' is not supported for kimi_linear");
  }
  moe = ReadMoeShape(
      reader, decoder.dim, decoder.residual_gain(),
      score == "sigmoid" && gating == 2 ? ExpertScore::kSigmoid : ExpertScore::kSoftmax);
  RoutingParams& routing = moe.routing;
  routing.renormalise = reader->Bool({"moe_renormalize", "expert_weights_norm"}, true);
  routing.sum_floor = 1e-20f;
  routing.scale = float(reader->Number({"routed_scaling_factor", "expert_weights_scale"},
                                       {1e-6, 1e6}, reader->gguf() ? 1.0 : 2.446));
  routing.groups = int(reader->Int({"num_expert_group", "expert_group_count"}, {1, 64}, 1));
  routing.group_top_k =
      int(reader->Int({"topk_group", "expert_group_used_count"}, {1, routing.groups}, 1));
  const int width = moe.experts / routing.groups;
  if (routing.groups > 1 && (moe.experts % routing.groups != 0 || width < 2 ||
                             routing.group_top_k * width < routing.top_k)) {
    reader->Refuse(std::to_string(moe.experts) + " experts cannot be chosen from " +
                   std::to_string(routing.groups) + " groups");
  }
  moe.shared_hidden =
      moe.hidden * reader->Int({"num_shared_experts", "expert_shared_count"}, {0, 64}, 1);
  moe.names.router = "block_sparse_moe.gate.weight";
  moe.names.selection_bias = "block_sparse_moe.gate.e_score_correction_bias";
  moe.names.experts = "block_sparse_moe.experts";
  moe.names.gate = "w1";
  moe.names.down = "w2";
  moe.names.up = "w3";
  moe.names.gate_up = "block_sparse_moe.experts.gate_up_proj";
  moe.names.all_down = "block_sparse_moe.experts.down_proj";
  moe.names.shared = "block_sparse_moe.shared_experts";

  const size_t count = size_t(decoder.layer_count);
  const auto types = reader->Texts({"mlp_layer_types", ""}, 4096);
  if (!types.empty() && types.size() != count) {
    reader->Refuse("mlp_layer_types does not have one entry per layer");
  }
  const int64_t first =
      reader->Int({"first_k_dense_replace", "leading_dense_block_count"}, {0, 4096}, 0);
  for (size_t i = 0; i < count; ++i) {
    if (i < types.size() && types[i] != "sparse" && types[i] != "dense") {
      reader->Refuse("mlp_layer_types '" + types[i] + "' is not supported for kimi_linear");
    }
    config->sparse.push_back(i < types.size() ? types[i] == "sparse" : int64_t(i) >= first);
  }
  if (!std::is_sorted(config->sparse.begin(), config->sparse.end())) {
    reader->Refuse("dense layers behind sparse ones (mlp_layer_types) are not supported");
  }
}

Result<Config> ReadConfig(ConfigReader* reader, DType kv) {
  Config config;
  DecoderConfig& decoder = config.decoder;
  const int64_t context =
      reader->Int({"model_max_length", ""}, {1, int64_t{1} << 30}, int64_t{1} << 20);
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, context, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  ReadLayers(reader, &config);

  KeyDeltaShape& delta = config.delta;
  delta.dim = decoder.dim;
  delta.eps = decoder.eps;
  delta.residual_gain = decoder.residual_gain();
  delta.heads =
      int(ReadDelta(reader, "linear_num_heads", "num_heads", "attention.head_count", {1, 1024}));
  delta.head_dim = int(ReadDelta(reader, "linear_head_dim", "head_dim", "kda.head_dim", {1, 1024}));
  delta.reach = int(ReadDelta(reader, "linear_conv_kernel_dim", "short_conv_kernel_size",
                              "ssm.conv_kernel", {2, 16}));
  for (const char* variant : {"gate_lower_bound", "use_full_rank_gate"}) {
    if (reader->Has({std::string("linear_attn_config.") + variant, ""})) {
      reader->Refuse("linear attention with " + std::string(variant) +
                     " is not supported for kimi_linear");
    }
  }
  MlaShape& attention = config.attention;
  attention.dim = decoder.dim;
  attention.residual_gain = decoder.residual_gain();
  attention.kv = kv;
  ReadMlaShape(reader, &attention);
  if (!reader->Bool({"mla_use_nope", ""}, true)) {
    reader->Refuse("rotary positions are not supported for kimi_linear");
  }
  ReadExperts(reader, &config);
  REPRISE_TRY(reader->status());
  return config;
}

// A hybrid: most layers mix tokens with a delta rule that decays by key channel, the others attend
// to latents, without positions.
class KimiLinear final : public ResidualStack {
 public:
  explicit KimiLinear(const Config& config)
      : ResidualStack(config.decoder,
                      {config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                       config.decoder.eps},
                      {}),
        config_(config) {
    MlpShape mlp;
    mlp.dim = config.decoder.dim;
    mlp.hidden = config.decoder.hidden;
    mlp.residual_gain = config.decoder.residual_gain();
    mlp.hf_alias = "block_sparse_moe";
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "input_layernorm", "attn_norm");
      if (config.recurrent[size_t(i)]) {
        AddWithState<KeyDelta>(config.delta);
      } else {
        AddWithState<MlaAttention>(config.attention);
      }
      AddBlock(i, "post_attention_layernorm", "ffn_norm");
      if (config.sparse[size_t(i)]) {
        Add<MoeMlp>(config.moe);
      } else {
        Add<GatedMlp>(mlp);
      }
    }
  }

  std::string DescribeNumerics() const override { return "nope" + DescribeRouting(config_.moe); }

  void DescribeGguf(GgufWriter* out) const override {
    const std::string prefix = "kimi-linear.";
    const auto put = [&](const char* key, int64_t value) {
      out->Put<uint32_t>(prefix + key, uint32_t(value));
    };
    DescribeStream(config_.decoder, kGgufTypes[0], out);
    DescribeMla(config_.attention, kGgufTypes[0], out);
    put("rope.dimension_count", config_.attention.rope_dim);
    DescribeMoe(config_.moe, kGgufTypes[0], out);
    put("feed_forward_length", config_.decoder.hidden);
    std::vector<uint32_t> kv_heads;
    for (const bool recurrent : config_.recurrent) kv_heads.push_back(recurrent ? 0 : 1);
    out->PutArray<uint32_t>(prefix + "attention.head_count_kv", kv_heads);
    put("kda.head_dim", config_.delta.head_dim);
    put("ssm.conv_kernel", config_.delta.reach);
    const RoutingParams& routing = config_.moe.routing;
    put("expert_shared_count", config_.moe.shared_hidden / config_.moe.hidden);
    put("expert_gating_func", routing.score == ExpertScore::kSigmoid ? 2 : 1);
    put("expert_group_count", routing.groups);
    put("expert_group_used_count", routing.group_top_k);
    out->Put<float>(prefix + "expert_weights_scale", routing.scale);
    const auto first = std::find(config_.sparse.begin(), config_.sparse.end(), true);
    put("leading_dense_block_count", first - config_.sparse.begin());
  }

 private:
  Config config_;
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  REPRISE_ASSIGN(const Config config, ReadConfig(reader, kv));
  return std::unique_ptr<FamilyModel>(std::make_unique<KimiLinear>(config));
}

}  // namespace

extern const Family k_kimi_linear;
const Family k_kimi_linear = {"kimi_linear", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
