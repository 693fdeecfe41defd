// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma4/config.h"

#include <algorithm>
#include <string>

#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kHeads{1, 4096};
constexpr IntRange kHeadDim{2, 1024};
constexpr IntRange kHidden{1, int64_t{1} << 22};

// What config.json may leave out.
constexpr std::string_view kDefaults = R"({"num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 262144, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "intermediate_size": 9216})";
// The same for files without a word about positions.
constexpr std::string_view kDefaultPositions = R"({"num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 262144, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "intermediate_size": 9216,
    "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                           "partial_rotary_factor": 0.25},
                        "sliding_attention": {"rope_theta": 10000.0}}})";

void CheckHeads(ConfigReader* reader, const Gemma4Config& config) {
  for (const Gemma4Heads* heads : {&config.all, &config.window}) {
    if (config.decoder.q_heads % heads->kv_heads != 0) {
      reader->Refuse(std::to_string(config.decoder.q_heads) + " attention heads cannot share " +
                     std::to_string(heads->kv_heads) + " K/V heads evenly");
    }
    if (heads->head_dim % 2 != 0) {
      reader->Refuse("heads of width " + std::to_string(heads->head_dim) + " are not supported");
    }
  }
}

// Files of Transformers list what the layers differ in; published ones have a second set.
void ReadFolderHeads(ConfigReader* reader, Gemma4Config* config) {
  config->window.head_dim = int(reader->Int({"head_dim", ""}, kHeadDim, 256));
  config->window.kv_heads = int(reader->Int({"num_key_value_heads", ""}, kHeads));
  config->all = config->window;
  const bool listed = reader->Has({"per_layer_config", ""});
  if (!listed) {
    config->all.head_dim = int(reader->Int({"global_head_dim", ""}, kHeadDim, 512));
    const int64_t heads =
        reader->Int({"num_global_key_value_heads", ""}, kHeads, config->window.kv_heads);
    if (config->value_is_key) config->all.kv_heads = int(heads);
  }
  bool first = true;
  for (int i = 0; listed && i < config->decoder.layer_count; ++i) {
    const std::string member = "per_layer_config." + std::to_string(i) + ".";
    Gemma4Heads heads = config->window;
    heads.head_dim = int(reader->Int({member + "head_dim", ""}, kHeadDim, heads.head_dim));
    heads.kv_heads = int(reader->Int({member + "num_key_value_heads", ""}, kHeads, heads.kv_heads));
    Gemma4Heads& kind = config->decoder.slides[size_t(i)] ? config->window : config->all;
    if (!config->decoder.slides[size_t(i)] && first) {
      kind = heads;
      first = false;
    } else if (heads.head_dim != kind.head_dim || heads.kv_heads != kind.kv_heads) {
      reader->Refuse(
          "per_layer_config with layers of one kind (sliding_attention, full_attention) that "
          "differ is not supported");
    }
  }
}

void ReadGgufHeads(ConfigReader* reader, Gemma4Config* config) {
  const ConfigKey key{"", "attention.head_count_kv"};
  const size_t count = size_t(config->decoder.layer_count);
  std::vector<int64_t> listed(count, config->decoder.q_heads);
  if (!reader->IsArray(key)) {
    listed.assign(count, reader->Int(key, kHeads, config->decoder.q_heads));
  } else if (const auto read = reader->Ints(key, 4096, kHeads); read.size() >= count) {
    listed = read;
  } else {
    reader->Refuse("the list of K/V heads does not have one entry per layer");
  }
  for (size_t i = 0; i < count; ++i) {
    Gemma4Heads& kind = config->decoder.slides[i] ? config->window : config->all;
    if (kind.kv_heads != 0 && kind.kv_heads != listed[i]) {
      reader->Refuse("layers of one kind with different K/V heads are not supported");
    }
    kind.kv_heads = int(listed[i]);
  }
  const auto width = [&](const char* of_keys, const char* of_values, int64_t fallback) {
    const int64_t keys = reader->Int({"", of_keys}, kHeadDim, fallback);
    const int64_t values = reader->Int({"", of_values}, kHeadDim, keys);
    if (keys != values) {
      reader->Refuse("heads of width " + std::to_string(keys) + " with values of width " +
                     std::to_string(values) + " are not supported");
    }
    return int(keys);
  };
  config->all.head_dim = width("attention.key_length", "attention.value_length", 512);
  config->window.head_dim =
      width("attention.key_length_swa", "attention.value_length_swa", config->all.head_dim);
  for (Gemma4Heads* heads : {&config->all, &config->window}) {
    if (heads->kv_heads == 0) heads->kv_heads = 1;  // of a kind that no layer has
  }
}

void ReadPositions(ConfigReader* reader, Gemma4Config* config) {
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const std::string member = "rope_parameters." + std::string(kind) + ".rope_theta";
    if (!reader->gguf() && !reader->Has({member, ""})) reader->Refuse("there is no " + member);
  }
  RopeExpectations expected;
  expected.member = "full_attention";
  expected.theta = 1000000;
  expected.proportional = true;
  config->all.rope = ReadRopeConfig(reader, config->all.head_dim, expected);
  config->window.rope =
      ReadWindowRope(reader, config->all.rope, {"sliding_attention", "", 10000});
  config->window.rope.rotary_dim = config->window.head_dim;
  const int64_t turning = reader->Int({"", "rope.dimension_count_swa"}, {1, kHeadDim.max},
                                      config->window.head_dim);
  if (config->all.rope.rotary_dim != config->all.head_dim || turning != config->window.head_dim) {
    reader->Refuse("rope.dimension_count other than the width of the heads is not supported");
  }
}

// The last layers share, and have to find a layer of their kind before them.
void ReadSharing(ConfigReader* reader, Gemma4Config* config) {
  DecoderConfig& decoder = config->decoder;
  config->shared_layers = int(reader->Int({"num_kv_shared_layers", "attention.shared_kv_layers"},
                                          {0, decoder.layer_count - 1}, 0));
  for (int i = 0; i < decoder.layer_count; ++i) {
    if (config->ProducerOf(i) >= 0) continue;
    reader->Refuse(
        "num_kv_shared_layers leaves no layer of a kind (sliding_attention, full_attention) with "
        "K/V of its own");
    config->shared_layers = 0;
    break;
  }
  const ConfigKey width{"intermediate_size", "feed_forward_length"};
  if (reader->gguf() && reader->IsArray(width)) {
    config->hidden = reader->Ints(width, 4096, kHidden);
    if (config->hidden.size() < size_t(decoder.layer_count)) {
      reader->Refuse("feed_forward_length does not have one entry per layer");
      config->hidden.assign(size_t(decoder.layer_count), 1);
    }
  } else {
    config->hidden.assign(size_t(decoder.layer_count), reader->Int(width, kHidden));
    if (reader->Bool({"use_double_wide_mlp", ""}, false)) {
      for (int i = 0; i < decoder.layer_count; ++i) {
        if (config->shares(i)) config->hidden[size_t(i)] *= 2;
      }
    }
  }
}

void ReadLayers(ConfigReader* reader, Gemma4Config* config) {
  DecoderConfig& decoder = config->decoder;
  for (const std::string& type : reader->Texts({"layer_types", ""}, 4096)) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader->Refuse("layer type '" + type + "' is not supported for gemma4");
    }
  }
  DecoderExpectations expected;
  expected.window_period = 6;
  expected.window = 512;
  ReadWindows(reader, expected, &decoder);
  // Transformers lets the last layer see everything, whatever the file says.
  if (!reader->gguf()) {
    decoder.slides.back() = false;
    decoder.windows.back() = 0;
  }
}

void ReadExperts(ConfigReader* reader, Gemma4Config* config) {
  const int64_t count = reader->Int({"", "expert_count"}, {0, 4096}, 0);
  if (reader->gguf() ? count == 0 : !reader->Bool({"enable_moe_block", ""}, false)) return;
  if (!reader->gguf() && !reader->Has({"num_experts", ""})) {
    return reader->Refuse("enable_moe_block needs num_experts");
  }
  MoeShape moe = ReadMoeShape(reader, config->decoder.dim, config->decoder.residual_gain());
  SetNormalised(reader, true, &moe);
  moe.activation = ExpertActivation::kGeGlu;
  moe.names.router = "router.proj.weight";
  moe.names.expert_scale = "router.per_expert_scale";
  moe.names.experts = "experts";
  moe.names.gate_up = "experts.gate_up_proj";
  moe.names.all_down = "experts.down_proj";
  config->moe = moe;
}

// The small models, which have embeddings for each layer, see pictures as they see text; GGUF files
// do not say it.
void ReadSight(ConfigReader* reader, Gemma4Config* config) {
  const std::string fallback = reader->gguf() && config->layer_dim == 0 ? "vision" : "";
  const std::string sight = reader->Text({"use_bidirectional_attention", ""}, fallback);
  if (!sight.empty() && sight != "vision") {
    reader->Refuse("use_bidirectional_attention '" + sight + "' is not supported for gemma4");
  }
  config->whole_pictures = sight == "vision";
}

void RefuseWhatIsNotComputed(ConfigReader* reader) {
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for gemma4");
  }
}

}  // namespace

int Gemma4Config::ProducerOf(int layer) const {
  if (!shares(layer)) return layer;
  int producer = decoder.layer_count - shared_layers - 1;
  while (producer >= 0 && decoder.slides[size_t(producer)] != decoder.slides[size_t(layer)]) {
    --producer;
  }
  return producer;
}

Gemma4Config ReadGemma4Config(ConfigReader* reader) {
  reader->AddDefaults(reader->Has({"rope_parameters", ""}) ? kDefaults : kDefaultPositions);
  RefuseWhatIsNotComputed(reader);
  Gemma4Config config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  CheckActivation(reader, "gelu_pytorch_tanh");
  ReadLayers(reader, &config);
  ReadSharing(reader, &config);
  decoder.q_heads = int(reader->Int({"num_attention_heads", "attention.head_count"}, kHeads));
  if (reader->gguf()) {
    for (int i = 0; i < decoder.layer_count; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      if (decoder.slides[size_t(i)] || config.shares(i)) continue;
      config.value_is_key = reader->FindTensor({"", block + "attn_v.weight"}) == nullptr;
      break;
    }
    ReadGgufHeads(reader, &config);
  } else {
    config.value_is_key = reader->Bool({"attention_k_eq_v", ""}, false);
    ReadFolderHeads(reader, &config);
  }
  CheckHeads(reader, config);
  ReadPositions(reader, &config);
  ReadVocabulary(reader, true, &decoder);
  config.layer_dim = reader->Int({"hidden_size_per_layer_input",
                                  "embedding_length_per_layer_input"},
                                 {0, 1 << 20}, reader->gguf() ? 0 : 256);
  ReadSight(reader, &config);
  const int64_t tokens =
      reader->Int({"vocab_size_per_layer_input", ""}, {1, kAnySize.max}, decoder.vocab_size);
  if (config.layer_dim != 0 && tokens != decoder.vocab_size) {
    reader->Refuse("vocab_size_per_layer_input other than vocab_size is not supported");
  }
  if (config.layer_dim == 0 && config.shared_layers != 0) {
    // Transformers fails on it.
    reader->Refuse(
        "num_kv_shared_layers without hidden_size_per_layer_input is not supported for gemma4");
  }
  ReadExperts(reader, &config);
  config.logit_softcap =
      float(reader->Number({"final_logit_softcapping", "final_logit_softcapping"}, {0, 1e6}, 0.0));
  return config;
}

void DescribeGemma4(const Gemma4Config& config, GgufWriter* out) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = "gemma4.";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  DescribeStream(decoder, "gemma4", out);
  DescribeRope(config.all.rope, prefix, out);
  const std::vector<int32_t> hidden(config.hidden.begin(), config.hidden.end());
  const bool alike = std::all_of(hidden.begin(), hidden.end(),
                                 [&](int32_t width) { return width == hidden[0]; });
  if (alike) {
    put("feed_forward_length", hidden[0]);
  } else {
    out->PutArray<int32_t>(prefix + "feed_forward_length", hidden);
  }
  put("attention.head_count", decoder.q_heads);
  std::vector<int32_t> kv_heads;
  std::vector<uint8_t> slides;
  for (int i = 0; i < decoder.layer_count; ++i) {
    kv_heads.push_back(config.heads(i).kv_heads);
    slides.push_back(decoder.slides[size_t(i)] ? 1 : 0);
  }
  if (config.all.kv_heads == config.window.kv_heads) {
    put("attention.head_count_kv", config.all.kv_heads);
  } else {
    out->PutArray<int32_t>(prefix + "attention.head_count_kv", kv_heads);
  }
  put("attention.key_length", config.all.head_dim);
  put("attention.value_length", config.all.head_dim);
  put("attention.key_length_swa", config.window.head_dim);
  put("attention.value_length_swa", config.window.head_dim);
  put("rope.dimension_count_swa", config.window.head_dim);
  out->Put<float>(prefix + "rope.freq_base_swa", float(config.window.rope.theta));
  const auto windowed = std::find_if(decoder.windows.begin(), decoder.windows.end(),
                                     [](int window) { return window != 0; });
  put("attention.sliding_window",
      windowed != decoder.windows.end() ? *windowed : decoder.context_length);
  out->PutArray<bool>(prefix + "attention.sliding_window_pattern",
                      {reinterpret_cast<const bool*>(slides.data()), slides.size()});
  put("attention.shared_kv_layers", config.shared_layers);
  put("embedding_length_per_layer_input", config.layer_dim);
  if (config.moe) DescribeMoe(*config.moe, "gemma4", out);
  if (config.logit_softcap != 0) {
    out->Put<float>(prefix + "final_logit_softcapping", config.logit_softcap);
  }
}

}  // namespace reprise
