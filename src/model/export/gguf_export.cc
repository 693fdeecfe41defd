// SPDX-License-Identifier: Apache-2.0
#include "model/export/gguf_export.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/reference/math.h"
#include "model/load.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

// Bytes of f32 values converted at a time.
constexpr int64_t kChunkBytes = int64_t{16} << 20;

bool IsWritten(const PlannedTensor& tensor) {
  if (!tensor.optional) return true;
  return std::any_of(tensor.computed.begin(), tensor.computed.end(),
                     [](float v) { return v != 1.0f; });
}

Shape ShapeOf(const PlannedTensor& tensor) {
  if (tensor.gguf_shape) return *tensor.gguf_shape;
  if (tensor.slices > 1) return {tensor.slices, tensor.rows, tensor.cols};
  return tensor.is_matrix() || tensor.rows > 1 ? Shape{tensor.rows, tensor.cols}
                                               : Shape{tensor.cols};
}

// One row of a GGUF file, from the row of the Hugging Face file that it corresponds to.
void MakeRow(const TensorSource& source, const PlannedTensor& tensor, int64_t row, float* values,
             float* scratch) {
  const HeadRows& heads = tensor.head_rows;
  const bool rows_move = heads.order != HeadOrder::kPlain && !heads.columns;
  const bool columns_move = heads.order != HeadOrder::kPlain && heads.columns;
  if (tensor.optional) {
    std::copy(tensor.computed.begin(), tensor.computed.end(), values);
    return;
  }
  const float factor = GgufFactor(tensor, row);
  source.ReadRow(tensor, rows_move ? HfRowOfGgufRow(heads, row) : row, scratch);
  for (int64_t col = 0; col < tensor.cols; ++col) {
    const float value = scratch[columns_move ? HfRowOfGgufRow(heads, col) : col] * factor;
    switch (tensor.values) {
      case ValueForm::kPlain:
        values[col] = value;
        break;
      case ValueForm::kOnePlus:
        values[col] = 1.0f + value;
        break;
      case ValueForm::kNegatedExp:
        values[col] = -float(reference::ExpDouble(double(value)));
        break;
    }
  }
}

Status WriteTensor(const TensorSource& source, const PlannedTensor& tensor, DType dtype,
                   bool repeated, GgufWriter* writer, ThreadPool* pool, Progress* progress) {
  const size_t row_bytes = RowBytes(dtype, tensor.cols);
  const int64_t chunk_rows = std::clamp<int64_t>(
      kChunkBytes / (tensor.cols * int64_t{sizeof(float)}), 1, tensor.row_count());
  std::vector<std::byte> chunk(size_t(chunk_rows) * row_bytes);
  for (int64_t first = 0; first < tensor.row_count(); first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, tensor.row_count() - first);
    const int64_t made = repeated && first > 0 ? 0 : count;
    pool->ParallelFor(made, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> values(size_t(tensor.cols));
      std::vector<float> scratch(size_t(tensor.cols));
      for (int64_t row = begin; row < end; ++row) {
        MakeRow(source, tensor, first + row, values.data(), scratch.data());
        QuantiseRow(dtype, values.data(), chunk.data() + size_t(row) * row_bytes, tensor.cols);
      }
    });
    const size_t bytes = size_t(count) * row_bytes;
    REPRISE_TRY(writer->Append(std::span(chunk).first(bytes)));
    progress->Advance(bytes);
  }
  return OkStatus();
}

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0;
  for (const char c : name) hash = Mix64(hash ^ uint64_t(uint8_t(c)));
  return hash;
}

}  // namespace

Status CheckpointSource::Check(const TensorPlan& plan) {
  for (const PlannedTensor& tensor : plan.tensors()) {
    if (tensor.optional) continue;
    REPRISE_ASSIGN(PlannedSource source, PlannedSource::Find(checkpoint_, tensor));
    sources_.emplace(tensor.gguf, std::move(source));
  }
  return OkStatus();
}

std::string CheckpointSource::prefix() const { return HfTensorPrefix(checkpoint_); }

void CheckpointSource::ReadRow(const PlannedTensor& tensor, int64_t row, float* out) const {
  const auto source = sources_.find(tensor.gguf);
  CHECK(source != sources_.end());
  source->second.ReadRow(row, DType::kF32, reinterpret_cast<std::byte*>(out));
}

void RandomSource::ReadRow(const PlannedTensor& tensor, int64_t row, float* out) const {
  const uint64_t seed = seed_ ^ HashName(tensor.gguf);
  for (int64_t col = 0; col < tensor.cols; ++col) {
    // Four 16-bit uniforms: a sum with variance 1/3, close enough to normal.
    const uint64_t bits = RandomAt(seed, uint64_t(row * tensor.cols + col));
    const int64_t sum = int64_t(bits & 0xFFFF) + int64_t(bits >> 16 & 0xFFFF) +
                        int64_t(bits >> 32 & 0xFFFF) + int64_t(bits >> 48);
    const float normal = float(sum - 2 * 0xFFFF) * (1.7320508f / 65536.0f);
    out[col] = tensor.init.mean + tensor.init.deviation * normal;
  }
}

Status ExportGguf(const GgufExport& request, GgufWriter* writer, ThreadPool* pool) {
  TensorPlan plan(request.source->prefix());
  request.model->DeclareTensors(&plan);
  REPRISE_TRY(request.source->Check(plan));
  const std::string_view architecture = request.model->gguf_architecture();
  writer->PutString("general.architecture",
                    architecture.empty() ? request.family->gguf_types[0] : architecture);
  writer->PutString("general.type", "model");
  writer->PutString("general.name", request.name);
  writer->Put<uint32_t>("general.file_type", uint32_t(request.mix.file_type));
  writer->Put<uint32_t>("general.quantization_version", 2);
  request.model->DescribeGguf(writer);

  const MixedTypes types(request.mix, plan);
  const auto type_of = [&](const PlannedTensor& tensor) {
    return tensor.is_matrix() ? types.TypeOf(tensor) : DType::kF32;
  };
  uint64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors()) {
    if (!IsWritten(tensor)) continue;
    const DType dtype = type_of(tensor);
    REPRISE_TRY(writer->AddTensor(tensor.gguf, dtype, ShapeOf(tensor)));
    bytes += RowBytes(dtype, tensor.cols) * uint64_t(tensor.row_count());
  }
  Progress progress(
      bytes, request.progress ? request.progress : [](uint64_t, uint64_t) {});
  REPRISE_TRY(writer->Open(request.path));
  for (const PlannedTensor& tensor : plan.tensors()) {
    if (!IsWritten(tensor)) continue;
    REPRISE_TRY(WriteTensor(*request.source, tensor, type_of(tensor), request.repeated, writer,
                            pool, &progress));
  }
  return writer->Finish();
}

}  // namespace reprise
