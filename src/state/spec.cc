// SPDX-License-Identifier: Apache-2.0
#include "state/spec.h"

#include "base/check.h"
#include "state/ids.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

size_t StateTensor::bytes() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  CHECK(elements > 0);
  if (dtype != DType::kQ8_0) return RowBytes(dtype, elements);
  return size_t(elements / shape.back()) * KvRowBytes(dtype, shape.back());
}

bool StateSpec::has_recurrent() const {
  for (const LayerState& layer : layers) {
    if (layer.kind == StateKind::kRecurrent) return true;
  }
  return false;
}

bool StateSpec::has_kv() const {
  for (const LayerState& layer : layers) {
    if (layer.kind != StateKind::kRecurrent) return true;
  }
  return false;
}

size_t StateSpec::bytes_per_token(StateKind kind) const {
  size_t bytes = 0;
  for (const LayerState& layer : layers) {
    if (layer.kind != kind || kind == StateKind::kRecurrent) continue;
    for (const StateTensor& tensor : layer.tensors) bytes += tensor.bytes();
  }
  return bytes;
}

size_t StateSpec::kv_block_bytes() const { return StateLayout(*this).block_bytes(); }
size_t StateSpec::state_bytes() const { return StateLayout(*this).state_bytes(); }

StateLayout::StateLayout(const StateSpec& spec) {
  for (const LayerState& layer : spec.layers) {
    const bool recurrent = layer.kind == StateKind::kRecurrent;
    size_t& end = recurrent ? state_bytes_ : block_bytes_;
    auto& offsets = offsets_.emplace_back();
    auto& bytes = bytes_.emplace_back();
    list_begins_.push_back(list_count_);
    if (layer.kind == StateKind::kFullKv) list_count_ += size_t(layer.kv_heads());
    for (const StateTensor& tensor : layer.tensors) {
      offsets.push_back(end);
      bytes.push_back(tensor.bytes());
      end += AlignUp(tensor.bytes() * (recurrent ? 1 : kBlockTokens));
    }
  }
}

}  // namespace reprise
