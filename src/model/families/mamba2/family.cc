// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>
#include <string>

#include "model/decoders/residual_stack.h"
#include "model/layers/mamba2.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"mamba2"};
constexpr std::string_view kGgufTypes[] = {"mamba2"};

constexpr PublishedSize kPublished[] = {
    {"mamba2-130m", R"({"model_type": "mamba2", "hidden_size": 768, "num_hidden_layers": 24,
      "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4,
      "expand": 2, "layer_norm_epsilon": 1e-5, "vocab_size": 50288,
      "tie_word_embeddings": true})"},
    {"mamba2-370m", R"({"model_type": "mamba2", "hidden_size": 1024, "num_hidden_layers": 48,
      "num_heads": 32, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4,
      "expand": 2, "layer_norm_epsilon": 1e-5, "vocab_size": 50288,
      "tie_word_embeddings": true})"},
    {"mamba2-2.7b", R"({"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64,
      "num_heads": 80, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4,
      "expand": 2, "layer_norm_epsilon": 1e-5, "vocab_size": 50288,
      "tie_word_embeddings": true})"},
    {"Mamba-Codestral-7B", R"({"model_type": "mamba2", "hidden_size": 4096,
      "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "state_size": 128,
      "n_groups": 8, "conv_kernel": 4, "expand": 2, "layer_norm_epsilon": 1e-5,
      "vocab_size": 32768, "tie_word_embeddings": false})"},
};

constexpr Mamba2Keys kKeys = {"state_size",  "num_heads", "head_dim",      "n_groups",
                              "conv_kernel", "use_bias",  "use_conv_bias", "expand"};

// No position limits these models; what llama.cpp writes for them.
constexpr int64_t kContext = int64_t{1} << 20;

Vocabulary::Shape MakeVocabulary(const DecoderConfig& config) {
  Vocabulary::Shape shape{config.vocab_size, config.dim, config.tied, config.eps};
  shape.hf_embedding = "embeddings.weight";
  shape.hf_norm = "norm_f";
  return shape;
}

// A stack of Mamba-2 mixers: x += mixer(norm(x)).
class Mamba2Model final : public ResidualStack {
 public:
  Mamba2Model(const DecoderConfig& config, const Mamba2Shape& shape)
      : ResidualStack(config, MakeVocabulary(config), {}), shape_(shape) {
    for (int i = 0; i < config.layer_count; ++i) {
      AddBlock(i, "norm", "attn_norm");
      AddWithState<Mamba2>(shape);
    }
  }

  std::string DescribeNumerics() const override { return reprise::DescribeNumerics(shape_); }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeStream(config(), kGgufTypes[0], out);
    DescribeMamba2(shape_, kGgufTypes[0], out);
    out->Put<uint32_t>("mamba2.attention.head_count", 0);
    out->Put<uint32_t>("mamba2.feed_forward_length", 0);
  }

 private:
  Mamba2Shape shape_;
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType) {
  DecoderConfig config;
  ReadStream(reader, {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}, kContext, &config);
  ReadVocabulary(reader, false, &config);
  CheckActivation(reader, "silu");
  Mamba2Shape shape;
  shape.dim = config.dim;
  shape.eps = config.eps;
  shape.residual_gain = config.residual_gain();
  ReadMamba2Shape(reader, kKeys, &shape);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Mamba2Model>(config, shape));
}

}  // namespace

extern const Family k_mamba2;
const Family k_mamba2 = {"mamba2", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
