// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/delta_decoder.h"

#include <utility>

#include "model/config/rope.h"
#include "model/layers/mlp.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

DeltaDecoder::DeltaDecoder(const DeltaDecoderConfig& config)
    : ResidualStack(config.decoder,
                    {config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                     config.decoder.eps, ValueForm::kOnePlus},
                    {ValueForm::kOnePlus, 1, true}),
      config_(config) {
  const DecoderConfig& decoder = config_.decoder;
  MlpShape mlp;
  mlp.dim = decoder.dim;
  mlp.hidden = decoder.hidden;
  mlp.residual_gain = decoder.residual_gain();
  for (int i = 0; i < decoder.layer_count; ++i) {
    AddBlock(i, "input_layernorm", "attn_norm");
    if (config_.recurrent[size_t(i)]) {
      AddWithState<GatedDeltaNet>(config_.delta);
    } else {
      AddWithState<Attention>(config_.attention);
    }
    AddBlock(i, "post_attention_layernorm", "post_attention_norm");
    if (config_.moe && config_.sparse[size_t(i)]) {
      Add<MoeMlp>(*config_.moe);
    } else {
      Add<GatedMlp>(mlp);
    }
  }
  if (config_.mtp.empty()) return;
  MtpShape mtp;
  mtp.dim = decoder.dim;
  mtp.attention = config_.attention;
  mtp.mlp = mlp;
  if (config_.moe) mtp.moe = std::make_unique<const MoeShape>(*config_.moe);
  mtp.eps = decoder.eps;
  mtp.norm_form = ValueForm::kOnePlus;
  mtp.hf = config_.mtp;
  AddMtp(std::move(mtp));
}

std::string DeltaDecoder::DescribeNumerics() const {
  return config_.decoder.rope.Describe() + (config_.delta.tiled_heads ? " tiled" : " grouped") +
         (config_.moe ? DescribeRouting(*config_.moe) : "");
}

void DeltaDecoder::DescribeGguf(GgufWriter* out) const {
  const std::string_view architecture = config_.variant.gguf_architecture;
  const std::string prefix = std::string(architecture) + ".";
  DecoderConfig decoder = config_.decoder;
  if (!config_.mtp.empty()) ++decoder.layer_count;  // GGUF counts the block
  DescribeDecoder(decoder, architecture, out);
  if (config_.moe) DescribeMoe(*config_.moe, architecture, out);
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  if (!config_.rope_sections.empty()) {
    const std::vector<int32_t> sections(config_.rope_sections.begin(), config_.rope_sections.end());
    out->PutArray<int32_t>(prefix + "rope.dimension_sections", sections);
  }
  if (!config_.mtp.empty()) put("nextn_predict_layers", 1);
  put("ssm.conv_kernel", config_.delta.reach);
  put("ssm.state_size", config_.delta.key_dim);
  put("ssm.group_count", config_.delta.key_heads);
  put("ssm.time_step_rank", config_.delta.value_heads);
  put("ssm.inner_size", config_.delta.value_width());
  if (config_.full_interval != 0) {
    put("full_attention_interval", config_.full_interval);
    return;
  }
  std::vector<uint8_t> flags(config_.recurrent.begin(), config_.recurrent.end());
  out->PutArray<bool>(prefix + "attention.recurrent_layers",
                      {reinterpret_cast<const bool*>(flags.data()), flags.size()});
}

Result<std::unique_ptr<FamilyModel>> MakeDeltaDecoder(ConfigReader* reader,
                                                      const DeltaVariant& variant, DType kv) {
  REPRISE_ASSIGN(const DeltaDecoderConfig config, ReadDeltaDecoderConfig(reader, variant, kv));
  return std::unique_ptr<FamilyModel>(std::make_unique<DeltaDecoder>(config));
}

}  // namespace reprise
