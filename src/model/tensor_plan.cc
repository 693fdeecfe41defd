// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_plan.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace reprise {

TensorPlan::Name TensorPlan::Global(std::string_view hf, std::string_view gguf) const {
  return {hf_prefix_ + std::string(hf), std::string(gguf)};
}

TensorPlan::Name TensorPlan::Head() const {
  const bool beside = hf_prefix_ == "language_model.model.";
  return {beside ? "language_model.lm_head.weight" : "lm_head.weight", "output.weight"};
}

TensorPlan::Name TensorPlan::Layer(int layer, std::string_view hf, std::string_view gguf) const {
  const std::string index = std::to_string(layer);
  if (layer == mtp_layer_) {
    return {mtp_prefix_ + "layers.0." + std::string(hf), "blk." + index + "." + std::string(gguf),
            layer};
  }
  return {hf_prefix_ + "layers." + index + "." + std::string(hf),
          "blk." + index + "." + std::string(gguf), layer};
}

void TensorPlan::BeginMtp(int layer, std::string_view hf_prefix) {
  mtp_layer_ = layer;
  mtp_prefix_ = hf_prefix;
}

TensorPlan::Name TensorPlan::Mtp(int layer, std::string_view hf, std::string_view gguf) const {
  return {mtp_prefix_ + std::string(hf), "blk." + std::to_string(layer) + "." + std::string(gguf),
          layer};
}

void TensorPlan::EndMtp(size_t first) {
  for (size_t i = first; i < tensors_.size(); ++i) {
    PlannedTensor& tensor = tensors_[i];
    tensor.mtp = true;
    // What keeps its state up to date.
    const bool always =
        tensor.gguf.ends_with("eh_proj.weight") || tensor.gguf.ends_with("attn_k.weight") ||
        tensor.gguf.ends_with("attn_kv_a_mqa.weight") || tensor.gguf.ends_with("attn_v.weight");
    if (!always) tensor.active = 0;
  }
}

PlannedTensor& TensorPlan::AddMatrix(Name name, int64_t rows, int64_t cols, Matrix* out) {
  CHECK(rows > 0 && cols > 0 && out != nullptr);
  PlannedTensor& tensor = tensors_.emplace_back();
  tensor.hf = std::move(name.hf);
  tensor.gguf = std::move(name.gguf);
  tensor.layer = name.layer;
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.matrix = out;
  tensor.init = {0, 1 / std::sqrt(float(cols))};
  return tensor;
}

PlannedTensor& TensorPlan::AddStack(Name name, int64_t slices, int64_t rows, int64_t cols,
                                    Matrix* out) {
  CHECK(slices > 0);
  PlannedTensor& tensor = AddMatrix(std::move(name), rows, cols, out);
  tensor.slices = slices;
  return tensor;
}

PlannedTensor& TensorPlan::AddVector(Name name, int64_t size, Vector* out) {
  CHECK(out != nullptr);
  vectors_.push_back({out, name.layer});
  return AddVector(std::move(name), size, &out->values());
}

PlannedTensor& TensorPlan::AddVector(Name name, int64_t size, std::vector<float>* out) {
  CHECK(size > 0 && out != nullptr);
  PlannedTensor& tensor = tensors_.emplace_back();
  tensor.hf = std::move(name.hf);
  tensor.gguf = std::move(name.gguf);
  tensor.layer = name.layer;
  tensor.cols = size;
  tensor.vector = out;
  return tensor;
}

PlannedTensor& TensorPlan::AddNorm(Name name, int64_t size, ValueForm values, Vector* out) {
  PlannedTensor& tensor = AddVector(std::move(name), size, out);
  tensor.values = values;
  tensor.init = {values == ValueForm::kOnePlus ? 0.0f : 1.0f, 0.1f};
  return tensor;
}

void TensorPlan::AddOptional(std::string_view gguf, std::vector<float> computed,
                             std::vector<float>* out) {
  PlannedTensor& tensor = AddVector({"", std::string(gguf)}, int64_t(computed.size()), out);
  tensor.optional = true;
  tensor.computed = std::move(computed);
}

std::vector<TensorPlan::OpVector> TensorPlan::vectors() const {
  std::vector<OpVector> all = vectors_;
  for (OpVector& one : all) {
    for (const PlannedTensor& tensor : tensors_) {
      if (tensor.vector == &one.vector->values()) one.routed = tensor.routed;
    }
  }
  return all;
}

int64_t TensorPlan::element_count() const {
  int64_t count = 0;
  for (const PlannedTensor& tensor : tensors_) count += tensor.element_count();
  return count;
}

int64_t FusedTensor::RowOf(int64_t planned_row) const {
  for (const RowParts& run : parts) {
    if (planned_row < run.count * run.rows) {
      return run.first + planned_row / run.rows * run.stride + planned_row % run.rows;
    }
    planned_row -= run.count * run.rows;
  }
  CHECK(false);
  return 0;
}

float GgufFactor(const PlannedTensor& tensor, int64_t row) {
  for (const RowFactor& part : tensor.gguf_factors) {
    if (row < part.rows) return part.factor;
    row -= part.rows;
  }
  return 1;
}

int64_t FileRowOfMemoryRow(const HeadRows& rows, bool gguf, int64_t row) {
  const int64_t size = rows.head_rows;
  const int64_t at = row - rows.first;
  if (at < 0) return row;
  switch (rows.order) {
    case HeadOrder::kPlain:
    case HeadOrder::kValueHeads:
      return row;
    case HeadOrder::kRotary: {
      if (!gguf) return row;
      const int64_t channel = at % size;
      const int64_t half = size / 2;
      return row - channel + 2 * (channel % half) + channel / half;
    }
    case HeadOrder::kQueryGate: {
      const bool gate = at >= size * rows.heads;
      const int64_t head = at / size % rows.heads;
      return rows.first + (2 * head + (gate ? 1 : 0)) * size + at % size;
    }
    case HeadOrder::kPairs: {
      const int64_t channel = at % size - (size - rows.tail);
      const int64_t half = rows.tail / 2;
      return channel < 0 ? row : row - channel + 2 * (channel % half) + channel / half;
    }
  }
  return row;
}

int64_t HfRowOfGgufRow(const HeadRows& rows, int64_t row) {
  const int64_t size = rows.head_rows;
  const int64_t at = row - rows.first;
  if (at < 0) return row;
  switch (rows.order) {
    case HeadOrder::kPlain:
    case HeadOrder::kQueryGate:
    case HeadOrder::kPairs:
      return row;
    case HeadOrder::kRotary: {
      const int64_t channel = at % size;
      return row - channel + channel % 2 * (size / 2) + channel / 2;
    }
    case HeadOrder::kValueHeads: {
      const int64_t tiled = at / size;
      const int64_t ratio = rows.heads / rows.key_heads;
      const int64_t grouped = tiled % rows.key_heads * ratio + tiled / rows.key_heads;
      return rows.first + grouped * size + at % size;
    }
  }
  return row;
}

}  // namespace reprise
