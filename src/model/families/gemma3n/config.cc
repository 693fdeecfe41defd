// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma3n/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/activation_ops.h"
#include "kernels/reference/math.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kHidden{1, int64_t{1} << 22};
constexpr size_t kLayersMax = 4096;
constexpr float kAll = -std::numeric_limits<float>::infinity();

// What config.json may leave out.
constexpr std::string_view kDefaults = R"({"vocab_size": 262400, "hidden_size": 2048,
    "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "altup_active_idx": 0, "altup_num_inputs": 4,
    "num_kv_shared_layers": 15, "laurel_rank": 64})";

// c[0] + c[1] x + ...
template <size_t kCount>
double Polynomial(const double (&c)[kCount], double x) {
  double sum = c[kCount - 1];
  for (size_t i = kCount - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

void ReadLayers(ConfigReader* reader, Gemma3nConfig* config) {
  DecoderConfig& decoder = config->decoder;
  for (const std::string& type : reader->Texts({"layer_types", ""}, kLayersMax)) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader->Refuse("layer type '" + type + "' is not supported for gemma3n");
    }
  }
  DecoderExpectations expected;
  expected.window_period = 5;
  expected.window = 512;
  ReadWindows(reader, expected, &decoder);
  config->shared_layers = int(reader->Int({"num_kv_shared_layers", "attention.shared_kv_layers"},
                                          {0, decoder.layer_count - 1}));
  for (int i = 0; i < decoder.layer_count; ++i) {
    if (config->ProducerOf(i) >= 0) continue;
    reader->Refuse(
        "num_kv_shared_layers leaves no layer of a kind (sliding_attention, full_attention) with "
        "K/V of its own");
    config->shared_layers = 0;
    break;
  }
}

void ReadFeedForward(ConfigReader* reader, Gemma3nConfig* config) {
  const size_t count = size_t(config->decoder.layer_count);
  const ConfigKey width{"intermediate_size", "feed_forward_length"};
  if (reader->IsArray(width)) {
    config->hidden = reader->Ints(width, kLayersMax, kHidden);
    if (config->hidden.size() != count) {
      reader->Refuse("intermediate_size does not have one entry per layer");
      config->hidden.assign(count, 1);
    }
  } else {
    config->hidden.assign(count, reader->Int(width, kHidden));
  }
  config->cuts.assign(count, kAll);
  const ConfigKey key{"activation_sparsity_pattern", "activation_sparsity_scale"};
  if (!reader->Has(key)) {  // Transformers, and llama.cpp always
    for (size_t i = 0; i < 10 && count > 10; ++i) config->cuts[i] = float(NormalQuantile(0.95));
    return;
  }
  if (!reader->IsArray(key)) return reader->Refuse("activation_sparsity_pattern is not a list");
  const std::vector<double> listed = reader->Numbers(key, kLayersMax);
  if (listed.size() != count) {
    return reader->Refuse("activation_sparsity_pattern does not have one entry per layer");
  }
  for (size_t i = 0; i < count; ++i) {
    if (reader->gguf()) {  // deviations already
      config->cuts[i] = float(listed[i]);
    } else if (listed[i] < 1) {
      config->cuts[i] = listed[i] > 0 ? float(NormalQuantile(listed[i])) : kAll;
    } else {
      reader->Refuse("activation_sparsity_pattern above 0.99... is not supported");
    }
    if (std::isnan(config->cuts[i])) reader->Refuse("activation_sparsity_scale is no number");
  }
}

void ReadPositions(ConfigReader* reader, Gemma3nConfig* config) {
  RopeExpectations expected;
  expected.member = "full_attention";
  expected.theta = 1000000;
  config->decoder.rope = ReadRopeConfig(reader, config->decoder.head_dim, expected);
  config->window_rope = ReadWindowRope(reader, config->decoder.rope,
                                       {"sliding_attention", "rope_local_base_freq", 10000});
}

void ReadStreams(ConfigReader* reader, Gemma3nConfig* config) {
  config->streams = int(reader->Int({"altup_num_inputs", "altup.num_inputs"}, {2, kMostStreams}));
  config->active =
      int(reader->Int({"altup_active_idx", "altup.active_idx"}, {0, config->streams - 1}));
  config->scaled_output = reader->Bool({"altup_correct_scale", "altup.correct_scale"}, true);
  if (const StoredTensor* left = reader->FindTensor({"", "blk.0.laurel_l.weight"});
      left != nullptr && left->shape.rank() == 2) {
    config->laurel_rank = left->shape[0];
  } else {
    config->laurel_rank = reader->Int({"laurel_rank", ""}, {1, 1 << 20}, 64);
  }
}

void ReadLayerEmbeddings(ConfigReader* reader, Gemma3nConfig* config) {
  config->layer_dim = reader->Int(
      {"hidden_size_per_layer_input", "embedding_length_per_layer_input"}, {1, 1 << 20});
  if (const StoredTensor* table = reader->FindTensor({"", "per_layer_token_embd.weight"});
      table != nullptr && table->shape.rank() == 2) {
    config->layer_tokens = table->shape[0];
  } else {
    config->layer_tokens =
        reader->Int({"vocab_size_per_layer_input", ""}, kAnySize, config->decoder.vocab_size);
  }
}

}  // namespace

double NormalQuantile(double part) {
  // Wichura's AS 241, PPND16: within 1e-15.
  constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                           1.9715909503065514427e+3, 1.3731693765509461125e+4,
                           4.5921953931549871457e+4, 6.7265770927008700853e+4,
                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kB[] = {1.0,
                           4.2313330701600911252e+1,
                           6.8718700749205790830e+2,
                           5.3941960214247511077e+3,
                           2.1213794301586595867e+4,
                           3.9307895800092710610e+4,
                           2.8729085735721942674e+4,
                           5.2264952788528545610e+3};
  constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                           5.76949722146069140550e0,  3.64784832476320460504e0,
                           1.27045825245236838258e0,  2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1.0,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                           1.78482653991729133580e0,  2.96560571828504891230e-1,
                           2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1.0,
                           5.99832206555887937690e-1,
                           1.36929880922735805310e-1,
                           1.48753612908506148525e-2,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  if (!(part > 0)) return -std::numeric_limits<double>::infinity();
  const double q = part - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double tail = std::min(part, 1 - part);
  if (!(tail > 0)) return std::numeric_limits<double>::infinity();
  const double r = std::sqrt(-reference::LogDouble(tail));
  const double value = r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6)
                              : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -value : value;
}

int Gemma3nConfig::ProducerOf(int layer) const {
  if (!shares(layer)) return layer;
  int producer = decoder.layer_count - shared_layers - 1;
  while (producer >= 0 && decoder.slides[size_t(producer)] != decoder.slides[size_t(layer)]) {
    --producer;
  }
  return producer;
}

Gemma3nConfig ReadGemma3nConfig(ConfigReader* reader) {
  reader->AddDefaults(kDefaults);
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for gemma3n");
  }
  Gemma3nConfig config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadHeads(reader, &decoder);
  CheckActivation(reader, "gelu_pytorch_tanh");
  ReadLayers(reader, &config);
  ReadFeedForward(reader, &config);
  ReadPositions(reader, &config);
  ReadVocabulary(reader, true, &decoder);
  ReadStreams(reader, &config);
  ReadLayerEmbeddings(reader, &config);
  // llama.cpp takes none for 30.
  config.logit_softcap =
      float(reader->Number({"final_logit_softcapping", "final_logit_softcapping"}, {0, 1e6}, 30.0));
  return config;
}

void DescribeGemma3n(const Gemma3nConfig& config, GgufWriter* out) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = "gemma3n.";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  DescribeStream(decoder, "gemma3n", out);
  DescribeRope(decoder.rope, prefix, out);
  out->Put<float>(prefix + "rope.freq_base_swa", float(config.window_rope.theta));
  const std::vector<int32_t> hidden(config.hidden.begin(), config.hidden.end());
  out->PutArray<int32_t>(prefix + "feed_forward_length", hidden);
  out->PutArray<float>(prefix + "activation_sparsity_scale", config.cuts);
  put("attention.head_count", decoder.q_heads);
  put("attention.head_count_kv", decoder.kv_heads);
  put("attention.key_length", decoder.head_dim);
  put("attention.value_length", decoder.head_dim);
  std::vector<uint8_t> slides;
  for (const bool one : decoder.slides) slides.push_back(one ? 1 : 0);
  const auto windowed = std::find_if(decoder.windows.begin(), decoder.windows.end(),
                                     [](int window) { return window != 0; });
  put("attention.sliding_window",
      windowed != decoder.windows.end() ? *windowed : decoder.context_length);
  out->PutArray<bool>(prefix + "attention.sliding_window_pattern",
                      {reinterpret_cast<const bool*>(slides.data()), slides.size()});
  put("attention.shared_kv_layers", config.shared_layers);
  put("embedding_length_per_layer_input", config.layer_dim);
  put("altup.num_inputs", config.streams);
  put("altup.active_idx", config.active);
  // Not known to llama.cpp, which always scales.
  if (!config.scaled_output) out->Put<bool>(prefix + "altup.correct_scale", false);
  out->Put<float>(prefix + "final_logit_softcapping", config.logit_softcap);
}

}  // namespace reprise
