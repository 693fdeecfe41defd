// SPDX-License-Identifier: Apache-2.0
#include "model/layers/mla.h"

#include <cmath>

#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kWidth{1, 4096};

}  // namespace

LayerState MlaAttention::state() const {
  return {layer_, StateKind::kFullKv, 0, {{"latent", {latent_width()}, shape_.kv}}};
}

void MlaAttention::AddCost(StateSpec* state) const {
  state->token_cost_per_position += double(shape_.heads) * (2.0 * shape_.kv_rank + shape_.rope_dim);
}

void MlaAttention::Declare(TensorPlan* plan) {
  const int64_t heads = shape_.heads;
  const int64_t nope = shape_.nope_dim;
  const int64_t value = shape_.value_dim;
  const int64_t rank = shape_.kv_rank;
  const auto name = [&](const std::string& hf, const std::string& gguf) {
    return plan->Layer(layer_, shape_.hf + "." + hf + ".weight", gguf + shape_.gguf + ".weight");
  };
  const auto pairs = [&](PlannedTensor& tensor, int64_t first, int64_t head_rows) {
    if (!shape_.rotary_pairs) return;
    tensor.head_rows = {HeadOrder::kPairs, false, first, 0, 0, head_rows, shape_.rope_dim};
  };
  const int64_t q_head = nope + shape_.rope_dim;
  if (shape_.q_rank > 0) {
    plan->AddMatrix(name("q_a_proj", "attn_q_a"), shape_.q_rank, shape_.dim, &q_a_);
    plan->AddNorm(name("q_a_layernorm", "attn_q_a_norm"), shape_.q_rank, ValueForm::kPlain,
                  &q_norm_);
    pairs(plan->AddMatrix(name("q_b_proj", "attn_q_b"), q_width(), shape_.q_rank, &q_b_), 0,
          q_head);
  } else {
    pairs(plan->AddMatrix(name("q_proj", "attn_q"), q_width(), shape_.dim, &q_), 0, q_head);
  }
  pairs(plan->AddMatrix(name("kv_a_proj_with_mqa", "attn_kv_a_mqa"), latent_width(), shape_.dim,
                        &kv_a_),
        rank, shape_.rope_dim);
  plan->AddNorm(name("kv_a_layernorm", "attn_kv_a_norm"), rank, ValueForm::kPlain, &kv_norm_);
  // Hugging Face files have what makes keys and values of a head one after the other.
  const auto add = [&](const char* gguf, int64_t rows, int64_t cols, int64_t part, int64_t first,
                       bool transposed, Matrix* out) {
    PlannedTensor& tensor = plan->AddStack(name("kv_b_proj", gguf), heads, rows, cols, out);
    tensor.fused = {
        tensor.hf, "", heads * (nope + value), {{heads, part, first, nope + value}}, transposed};
    tensor.hf.clear();
  };
  add("attn_k_b", rank, nope, nope, 0, true, &k_b_);
  add("attn_v_b", value, rank, value, nope, false, &v_b_);
  plan->AddMatrix(name("o_proj", "attn_output"), shape_.dim, heads * value, &o_).init.deviation *=
      shape_.residual_gain;
}

void MlaAttention::CompleteWeights() {
  for (float& weight : kv_norm_.values()) weight *= shape_.kv_scale;
}

Rows MlaAttention::MakeQueries(const Step& step, const ConstRows& x) const {
  const OpContext& context = step.context();
  const Rows q = step.MakeRows(q_width());
  if (shape_.q_rank == 0) {
    const Projection projection[] = {{&q_, q}};
    Project(context, x, projection);
    return q;
  }
  const Rows compressed = step.MakeRows(shape_.q_rank);
  const Projection down[] = {{&q_a_, compressed}};
  Project(context, x, down);
  RmsNorm(context, compressed, q_norm_.data(), 1, shape_.eps, compressed);
  const Projection up[] = {{&q_b_, q}};
  Project(context, compressed, up);
  return q;
}

Rows MlaAttention::Absorb(const Step& step, const RopeTable& rope, const ConstRows& q) const {
  const OpContext& context = step.context();
  const int64_t head_width = shape_.nope_dim + shape_.rope_dim;
  const Rows absorbed = step.MakeRows(shape_.heads * latent_width());
  const HeadProjection keys[] = {{&k_b_, absorbed, latent_width()}};
  ProjectHeads(context, q, head_width, keys);
  // The turning channels go behind what was absorbed.
  const int64_t count = q.cols - shape_.nope_dim;
  CopyHeads(context, shape_.heads, shape_.rope_dim, Columns(q, shape_.nope_dim, count), head_width,
            Columns(absorbed, shape_.kv_rank, absorbed.cols - shape_.kv_rank), latent_width());
  if (rope.half > 0) Rope(context, rope, shape_.heads, absorbed, shape_.kv_rank);
  return absorbed;
}

void MlaAttention::Store(const Step& step, const RopeTable& rope, const ConstRows& x) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows latent = step.MakeRows(latent_width());
  const Projection down[] = {{&kv_a_, latent}};
  Project(context, x, down);
  const Rows compressed = Columns(latent, 0, shape_.kv_rank);
  RmsNorm(context, compressed, kv_norm_.data(), 1, shape_.eps, compressed);
  if (rope.half > 0) Rope(context, rope, 1, Columns(latent, shape_.kv_rank, shape_.rope_dim));
  StoreKv(context, step.layout(), step.Kv(layer_state_), kv_shape(), latent, latent);
}

KvShape MlaAttention::kv_shape() const {
  KvShape shape{1, int(latent_width()), shape_.kv_rank, shape_.kv};
  shape.value_in_key = true;
  return shape;
}

void MlaAttention::Forward(const Step& step, const RopeTable& rope, const ConstRows& x,
                           const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  Store(step, rope, x);
  const Rows q = Absorb(step, rope, MakeQueries(step, x));
  const KvShape kv_shape = this->kv_shape();
  const KvPlace place = step.Kv(layer_state_);
  AttentionParams params;
  params.q_heads = shape_.heads;
  params.scale = shape_.q_scale / std::sqrt(float(shape_.nope_dim + shape_.rope_dim));
  step.Watch(layer_state_, kv_shape, params, q);
  const Rows attended = step.MakeRows(int64_t{shape_.heads} * shape_.kv_rank);
  Attend(context, step.layout(), place, kv_shape, params, q, attended);
  const Rows values = step.MakeRows(int64_t{shape_.heads} * shape_.value_dim);
  const HeadProjection heads[] = {{&v_b_, values, shape_.value_dim}};
  ProjectHeads(context, attended, shape_.kv_rank, heads);
  const Projection output[] = {{&o_, out}};
  Project(context, values, output);
}

void ReadMlaShape(ConfigReader* reader, MlaShape* shape) {
  shape->heads = int(reader->Int({"num_attention_heads", "attention.head_count"}, {1, 4096}));
  shape->q_rank = int(reader->Int({"q_lora_rank", "attention.q_lora_rank"}, {0, 1 << 20}, 0));
  shape->kv_rank = int(reader->Int({"kv_lora_rank", "attention.kv_lora_rank"}, kWidth));
  shape->rope_dim = int(reader->Int({"qk_rope_head_dim", "rope.dimension_count"}, {2, kWidth.max}));
  shape->value_dim = int(reader->Int({"v_head_dim", "attention.value_length_mla"}, kWidth));
  if (reader->gguf()) {
    const int64_t all = reader->Int({"", "attention.key_length_mla"}, {2, 2 * kWidth.max});
    shape->nope_dim = int(all - shape->rope_dim);
  } else {
    shape->nope_dim = int(reader->Int({"qk_nope_head_dim", ""}, kWidth));
  }
  if (shape->nope_dim < 1 || shape->nope_dim > kWidth.max || shape->rope_dim % 2 != 0) {
    reader->Refuse("latent attention with heads of " + std::to_string(shape->nope_dim) + " and " +
                   std::to_string(shape->rope_dim) + " channels is not supported");
    shape->nope_dim = 2;
    shape->rope_dim = 2;
  }
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for latent attention");
  }
  if (!reader->gguf() &&
      reader->Int({"num_key_value_heads", ""}, {0, 4096}, shape->heads) != shape->heads) {
    reader->Refuse(
        "num_key_value_heads other than num_attention_heads is not supported for "
        "latent attention");
  }
}

void DescribeMla(const MlaShape& shape, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  put("attention.head_count", shape.heads);
  if (shape.q_rank > 0) put("attention.q_lora_rank", shape.q_rank);
  put("attention.kv_lora_rank", shape.kv_rank);
  put("attention.key_length", shape.kv_rank + shape.rope_dim);
  put("attention.value_length", shape.kv_rank);
  put("attention.key_length_mla", shape.nope_dim + shape.rope_dim);
  put("attention.value_length_mla", shape.value_dim);
}

}  // namespace reprise
