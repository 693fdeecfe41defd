// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/gemma.h"

#include <cmath>
#include <optional>
#include <string>

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

// Scores are multiplied by query_pre_attn_scalar^-1/2; GGUF files leave it to the size of the
// model.
float ReadAttentionScale(ConfigReader* reader, const DecoderConfig& config, int wide_layers) {
  const bool wide = config.layer_count == wide_layers;
  const double implied = wide ? double(config.dim) / config.q_heads : double(config.head_dim);
  if (reader->gguf()) {
    return float(
        reader->Number({"", "attention.scale"}, {1e-9, 1e9}, 1 / std::sqrt(std::floor(implied))));
  }
  return float(1 / std::sqrt(reader->Number({"query_pre_attn_scalar", ""}, {1e-9, 1e9}, 256.0)));
}

// A file that is silent means the published value if it is GGUF; config.json has to say where there
// is one.
float ReadSoftcap(ConfigReader* reader, const char* key, double published) {
  std::optional<double> fallback = published;
  if (!reader->gguf() && published != 0) fallback.reset();
  return float(reader->Number({key, key}, {0, 1e6}, fallback));
}

}  // namespace

Result<std::unique_ptr<FamilyModel>> MakeGemma(ConfigReader* reader, GemmaVariant variant,
                                               DType kv) {
  variant.expected.activation = "gelu_pytorch_tanh";
  reader->AddDefaults(variant.defaults);
  const DecoderConfig config = ReadDecoderConfig(reader, variant.expected);
  DenseTraits traits;
  traits.gguf_architecture = variant.gguf_architecture;
  traits.qk_norm = variant.qk_norm;
  traits.whole_pictures = variant.whole_pictures;
  traits.post_norms = true;
  traits.norm_form = ValueForm::kOnePlus;
  traits.activation = MlpActivation::kGeGlu;
  traits.embedding_scale = std::sqrt(float(config.dim));
  traits.attention_scale = ReadAttentionScale(reader, config, variant.wide_layers);
  traits.attention_softcap =
      ReadSoftcap(reader, "attn_logit_softcapping", variant.attention_softcap);
  traits.logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", variant.logit_softcap);
  if (!variant.window_rope_member.empty()) {
    traits.window_rope = ReadWindowRope(
        reader, config.rope, {variant.window_rope_member, "rope_local_base_freq", 10000});
  }
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for " + std::string(variant.gguf_architecture));
  }
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace reprise
