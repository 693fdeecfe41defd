// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/dense_decoder.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/check.h"
#include "kernels/activation_ops.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

AttentionShape MakeAttentionShape(const DecoderConfig& config, const DenseTraits& traits,
                                  DType kv) {
  AttentionShape shape = reprise::MakeAttentionShape(config, kv);
  shape.scale = traits.attention_scale;
  shape.softcap = traits.attention_softcap;
  shape.bias = traits.qkv_bias;
  shape.output_bias = traits.output_bias;
  shape.qk_norm = traits.qk_norm;
  shape.whole_norm = traits.whole_norm;
  shape.late_norm = traits.late_norm;
  shape.sinks = traits.sinks;
  shape.whole_pictures = traits.whole_pictures;
  shape.growth = traits.query_growth;
  shape.context_length = config.context_length;
  shape.hf_q_norm = traits.hf_q_norm;
  shape.hf_k_norm = traits.hf_k_norm;
  shape.norm_form = traits.norm_form;
  shape.fused = traits.fused;
  shape.rotary_pairs_in_gguf = traits.rotary_pairs_in_gguf;
  return shape;
}

MlpShape MakeMlpShape(const DecoderConfig& config, const DenseTraits& traits) {
  MlpShape shape;
  shape.dim = config.dim;
  shape.hidden = config.hidden;
  shape.activation = traits.activation;
  shape.fused = traits.fused;
  shape.residual_gain = config.residual_gain();
  return shape;
}

Vocabulary::Shape MakeVocabularyShape(const DecoderConfig& config, const DenseTraits& traits) {
  return {config.vocab_size,    config.dim,        config.tied,
          config.eps,           traits.norm_form,  traits.embedding_scale,
          traits.logit_softcap, traits.logit_scale};
}

// The rows of a picture.
Rows RowsOf(const Rows& x, const PictureRows& picture) {
  return {x.data + int64_t{picture.row_begin} * x.stride, picture.row_count, x.cols, x.stride};
}

}  // namespace

DenseDecoder::DenseDecoder(const DecoderConfig& config, const DenseTraits& traits, DType kv)
    : config_(config),
      traits_(traits),
      vocabulary_(MakeVocabularyShape(config, traits)),
      rotary_(config.rope) {
  if (traits.window_rope) window_rotary_.emplace(*traits.window_rope);
  card_.vocab_size = config.vocab_size;
  card_.dim = config.dim;
  card_.context_length = config.context_length;
  card_.rope_regime = config.rope.Regime();
  card_.whole_pictures = traits.whole_pictures;
  layers_.reserve(size_t(config.layer_count));
  AttentionShape shape = MakeAttentionShape(config, traits, kv);
  for (int i = 0; i < config.layer_count; ++i) {
    shape.window = config.windows[size_t(i)];
    Layer& layer = layers_.emplace_back(Attention(shape, i, size_t(i)));
    layer.window = config.slides[size_t(i)];
    layer.turns = traits.turns.empty() || traits.turns[size_t(i)];
    if (traits.moe && (traits.sparse.empty() || traits.sparse[size_t(i)])) {
      layer.moe.emplace(*traits.moe, i);
    } else {
      layer.mlp.emplace(MakeMlpShape(config, traits), i);
    }
    card_.state.layers.push_back(layer.attention.state());
    layer.attention.AddCost(&card_.state);
  }
  if (traits.mtp) AddMtp(shape);
}

void DenseDecoder::AddMtp(const AttentionShape& attention) {
  MtpShape mtp;
  mtp.dim = config_.dim;
  mtp.attention = attention;
  mtp.moe = std::make_unique<const MoeShape>(*traits_.moe);
  mtp.eps = config_.eps;
  mtp.norm_form = traits_.norm_form;
  mtp.hf.clear();
  mtp.gguf_mlp_norm = traits_.gguf_mlp_norm;
  mtp_ = std::make_unique<MtpBlock>(std::move(mtp), config_.layer_count, layers_.size());
  card_.state.layers.push_back(mtp_->kv());
  card_.state.layers.push_back(mtp_->hidden());
  card_.mtp_state = mtp_->hidden_state();
}

void DenseDecoder::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  rotary_.Declare(plan);
  if (window_rotary_) window_rotary_->DeclareAngles(plan);
  for (int i = 0; i < config_.layer_count; ++i) DeclareLayer(plan, i);
  if (mtp_) mtp_->Declare(plan);
  vocabulary_.DeclareHead(plan);
}

void DenseDecoder::DeclareLayer(TensorPlan* plan, int index) {
  Layer& layer = layers_[size_t(index)];
  const auto norm = [&](const char* hf, std::string_view gguf, Vector* out) {
    plan->AddNorm(plan->Layer(index, hf, gguf), config_.dim, traits_.norm_form, out);
  };
  if (traits_.pre_norms) {
    norm("input_layernorm.weight", "attn_norm.weight", &layer.attention_norm);
  }
  layer.attention.Declare(plan);
  if (traits_.post_norms) {
    norm("post_attention_layernorm.weight", "post_attention_norm.weight",
         &layer.attention_post_norm);
  }
  if (traits_.pre_norms) {
    norm(
        traits_.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
        traits_.gguf_mlp_norm, &layer.mlp_norm);
  }
  if (layer.moe) {
    layer.moe->Declare(plan);
  } else {
    layer.mlp->Declare(plan);
  }
  if (traits_.post_norms) {
    norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &layer.mlp_post_norm);
  }
}

void DenseDecoder::CompleteWeights() {
  rotary_.CompleteWeights();
  if (window_rotary_) window_rotary_->CompleteWeights();
  for (Layer& layer : layers_) layer.attention.CompleteWeights();
  if (mtp_) mtp_->CompleteWeights();
}

std::string DenseDecoder::DescribeNumerics() const {
  std::string text = config_.rope.Describe();
  if (traits_.window_rope) text += " window " + traits_.window_rope->Describe();
  if (traits_.moe) text += DescribeRouting(*traits_.moe);
  char numbers[128];
  std::snprintf(numbers, sizeof(numbers), " scale %.9g cap %.9g embedding %.9g",
                double(traits_.attention_scale), double(traits_.attention_softcap),
                double(traits_.embedding_scale));
  const bool plain = traits_.attention_scale == 0 && traits_.attention_softcap == 0 &&
                     traits_.embedding_scale == 1;
  if (!plain) text += numbers;
  if (traits_.residual_scale != 1 || traits_.logit_scale != 1) {
    std::snprintf(numbers, sizeof(numbers), " residual %.9g logits %.9g",
                  double(traits_.residual_scale), double(traits_.logit_scale));
    text += numbers;
  }
  if (traits_.query_growth.beta != 0) {
    std::snprintf(numbers, sizeof(numbers), " queries grow %.9g every %lld",
                  double(traits_.query_growth.beta),
                  static_cast<long long>(traits_.query_growth.period));
    text += numbers;
  }
  if (!traits_.turns.empty()) {
    text += " turns ";
    for (const bool turns : traits_.turns) text += turns ? '1' : '0';
  }
  if (!traits_.pre_norms) text += " norms behind";
  if (traits_.whole_norm) text += " norms of all heads";
  if (traits_.late_norm) text += " norms behind positions";
  if (traits_.sinks) text += " sinks";
  return text;
}

void DenseDecoder::DescribeGguf(GgufWriter* out) const {
  const std::string prefix = std::string(traits_.gguf_architecture) + ".";
  DecoderConfig config = config_;
  if (mtp_) {  // GGUF counts the block
    ++config.layer_count;
    out->Put<uint32_t>(prefix + "nextn_predict_layers", 1);
  }
  DescribeDecoder(config, traits_.gguf_architecture, out);
  if (traits_.moe) DescribeMoe(*traits_.moe, traits_.gguf_architecture, out);
  const auto put = [&](const char* key, double value) {
    if (value != 0) out->Put<float>(prefix + key, float(value));
  };
  put("attention.scale", double(traits_.attention_scale));
  put("attn_logit_softcapping", double(traits_.attention_softcap));
  put("final_logit_softcapping", double(traits_.logit_softcap));
  if (traits_.window_rope) put("rope.freq_base_swa", traits_.window_rope->theta);
  if (traits_.describe) traits_.describe(prefix, out);
}

void DenseDecoder::RunLayer(const Step& step, const Layer& layer, const RopeTable& rope,
                            const Rows& x, const Rows& h, const Rows& y) const {
  const OpContext& context = step.context();
  const float eps = config_.eps;
  const Rows& in = traits_.pre_norms ? h : x;
  const auto complete = [&](const Vector& post_norm) {
    if (traits_.post_norms) RmsNorm(context, y, post_norm.data(), 1, eps, y);
    if (traits_.residual_scale != 1) Scale(context, y, traits_.residual_scale, y);
  };
  if (traits_.pre_norms) RmsNorm(context, x, layer.attention_norm.data(), 1, eps, h);
  layer.attention.Forward(step, rope, in, y);
  complete(layer.attention_post_norm);
  if (traits_.pre_norms) {
    AddRmsNorm(context, x, y, layer.mlp_norm.data(), eps, h);
  } else {
    Add(context, x, y, x);
  }
  if (layer.moe) {
    layer.moe->Forward(step, in, y);
  } else {
    layer.mlp->Forward(step, in, y);
  }
  complete(layer.mlp_post_norm);
  Add(context, x, y, x);
}

void DenseDecoder::EmbedPictures(const Step& home, const Rows& x) const {
  const int64_t stride = x.cols * (1 + traits_.picture_layers);
  for (const PictureRows& picture : home.batch().pictures) {
    CopyHeads(home.context(), 1, x.cols, {picture.vectors, picture.row_count, x.cols, stride}, 0,
              RowsOf(x, picture), 0);
  }
}

void DenseDecoder::AddPictures(const Step& home, const Step& step, int layer, const Rows& x) const {
  if (layer >= traits_.picture_layers) return;
  const int64_t stride = x.cols * (1 + traits_.picture_layers);
  for (const PictureRows& picture : home.batch().pictures) {
    const ConstRows added = {picture.vectors + (layer + 1) * x.cols, picture.row_count, x.cols,
                             stride};
    const Rows rows = RowsOf(x, picture);
    Add(step.context(), rows, &step == &home ? added : ConstRows(step.Bring(home, added)), rows);
  }
}

void DenseDecoder::Run(const Step& home, const StepResults& results) const {
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  if (traits_.picture_layers > 0) EmbedPictures(home, x);
  RopeTable rope = rotary_.Table(home);
  RopeTable window_rope = window_rotary_ ? window_rotary_->Table(home) : rope;
  Rows h = home.MakeRows(config_.dim);
  Rows y = home.MakeRows(config_.dim);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (const Step& next = home.OfLayer(int(i)); &next != step) {
      x = next.Bring(*step, x);
      rope = next.Bring(*step, rope);
      window_rope = window_rotary_ ? next.Bring(*step, window_rope) : rope;
      h = next.MakeRows(config_.dim);
      y = next.MakeRows(config_.dim);
      step = &next;
    }
    RunLayer(*step, layer, !layer.turns ? RopeTable{} : layer.window ? window_rope : rope, x, h, y);
    AddPictures(home, *step, int(i), x);
  }
  if (mtp_) {
    CHECK(step == &home);
    return mtp_->Finish(home, vocabulary_, rope, x, results);
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

void DenseDecoder::Predict(const Step& step, const ConstRows& before,
                           const StepResults& results) const {
  CHECK(mtp_ != nullptr);
  mtp_->Guess(step, vocabulary_, rotary_.Table(step), before, results);
}

Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* reader,
                                                      const DenseTraits& traits, DType kv) {
  return MakeDenseDecoder(reader, ReadDecoderConfig(reader), traits, kv);
}

Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* reader,
                                                      const DecoderConfig& config,
                                                      const DenseTraits& traits, DType kv) {
  for (const std::string& type : reader->Texts({"layer_types", ""}, 4096)) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader->Refuse("layer type '" + type + "' is not supported for this family");
    }
  }
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<DenseDecoder>(config, traits, kv));
}

}  // namespace reprise
