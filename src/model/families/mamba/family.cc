// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>
#include <string>

#include "model/decoders/residual_stack.h"
#include "model/layers/mamba.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"mamba", "falcon_mamba"};
constexpr std::string_view kGgufTypes[] = {"mamba"};

constexpr PublishedSize kPublished[] = {
    {"mamba-130m", R"({"model_type": "mamba", "hidden_size": 768, "intermediate_size": 1536,
      "num_hidden_layers": 24, "state_size": 16, "conv_kernel": 4, "time_step_rank": 48,
      "layer_norm_epsilon": 1e-5, "vocab_size": 50280, "tie_word_embeddings": true})"},
    {"mamba-2.8b", R"({"model_type": "mamba", "hidden_size": 2560, "intermediate_size": 5120,
      "num_hidden_layers": 64, "state_size": 16, "conv_kernel": 4, "time_step_rank": 160,
      "layer_norm_epsilon": 1e-5, "vocab_size": 50280, "tie_word_embeddings": true})"},
    {"falcon-mamba-7b", R"({"model_type": "falcon_mamba", "hidden_size": 4096,
      "intermediate_size": 8192, "num_hidden_layers": 64, "state_size": 16, "conv_kernel": 4,
      "time_step_rank": 256, "layer_norm_epsilon": 1e-5, "mixer_rms_eps": 1e-6,
      "vocab_size": 65024, "tie_word_embeddings": false})"},
};

// No position limits these models; what llama.cpp writes for them.
constexpr int64_t kContext = int64_t{1} << 20;

Vocabulary::Shape MakeVocabulary(const DecoderConfig& config) {
  Vocabulary::Shape shape{config.vocab_size, config.dim, config.tied, config.eps};
  shape.hf_embedding = "embeddings.weight";
  shape.hf_norm = "norm_f";
  return shape;
}

// A stack of Mamba mixers: x += mixer(norm(x)).
class MambaModel final : public ResidualStack {
 public:
  MambaModel(const DecoderConfig& config, const MambaShape& shape)
      : ResidualStack(config, MakeVocabulary(config), {}), shape_(shape) {
    for (int i = 0; i < config.layer_count; ++i) {
      AddBlock(i, "norm", "attn_norm");
      AddWithState<Mamba>(shape);
    }
  }

  std::string DescribeNumerics() const override {
    if (shape_.norms == MambaShape::Norms::kNone) return "mamba";
    return "falcon_mamba eps " + std::to_string(shape_.norm_eps * 1e9f);
  }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeStream(config(), kGgufTypes[0], out);
    DescribeMamba(shape_, kGgufTypes[0], out);
    out->Put<uint32_t>("mamba.attention.head_count", 0);
    out->Put<uint32_t>("mamba.feed_forward_length", 0);
    out->Put<bool>("mamba.ssm.dt_b_c_rms", shape_.norms == MambaShape::Norms::kPlain);
    // llama.cpp uses the epsilon of the other norms here and does not know this key.
    if (shape_.norms == MambaShape::Norms::kPlain) {
      out->Put<float>("mamba.ssm.dt_b_c_rms_epsilon", shape_.norm_eps);
    }
  }

 private:
  MambaShape shape_;
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType) {
  DecoderConfig config;
  ReadStream(reader, {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}, kContext, &config);
  ReadVocabulary(reader, true, &config);
  CheckActivation(reader, "silu");
  MambaShape shape;
  shape.dim = config.dim;
  shape.residual_gain = config.residual_gain();
  ReadMambaShape(reader, {}, &shape);
  const bool falcon = reader->Text({"model_type", ""}, "") == "falcon_mamba";
  if (falcon || reader->Bool({"", "ssm.dt_b_c_rms"}, false)) {
    shape.norms = MambaShape::Norms::kPlain;
    shape.norm_eps = float(reader->Number({"mixer_rms_eps", "ssm.dt_b_c_rms_epsilon"}, {0, 1},
                                          falcon ? 1e-6 : double(config.eps)));
  }
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<MambaModel>(config, shape));
}

}  // namespace

extern const Family k_mamba;
const Family k_mamba = {"mamba", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
