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

size_t StateLayout::BytesIn(const UnitShape& unit, int memory) {
  size_t bytes = 0;
  for (const UnitShape::Piece& piece : unit.pieces) {
    if (piece.memory == memory) bytes += piece.bytes;
  }
  return bytes;
}

StateLayout::StateLayout(const StateSpec& spec) {
  for (const LayerState& layer : spec.layers) {
    const bool recurrent = layer.kind == StateKind::kRecurrent;
    UnitShape& unit = recurrent ? state_ : block_;
    auto& offsets = offsets_.emplace_back();
    auto& places = places_.emplace_back();
    auto& bytes = bytes_.emplace_back();
    list_begins_.push_back(list_count_);
    if (layer.kind == StateKind::kFullKv) list_count_ += size_t(layer.kv_heads());
    for (const StateTensor& tensor : layer.tensors) {
      if (unit.pieces.empty() || unit.pieces.back().memory != layer.memory) {
        unit.pieces.push_back({layer.memory, 0});
      }
      const size_t size = AlignUp(tensor.bytes() * (recurrent ? 1 : kBlockTokens));
      offsets.push_back(unit.bytes);
      places.push_back(BytesIn(unit, layer.memory));
      bytes.push_back(tensor.bytes());
      unit.bytes += size;
      unit.pieces.back().bytes += size;
    }
  }
}

}  // namespace reprise
