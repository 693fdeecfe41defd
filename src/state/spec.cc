// SPDX-License-Identifier: Apache-2.0
#include "state/spec.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "state/ids.h"
#include "tensor/kv_row.h"

namespace reprise {
namespace {

size_t AlignUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Where the part of a unit that lies in `memory` ends so far.
size_t PartEnd(const UnitShape& unit, int memory) {
  size_t end = 0;
  for (const UnitShape::Piece& piece : unit.pieces) {
    if (piece.memory == memory) end = std::max(end, piece.place + piece.bytes);
  }
  return end;
}

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

double StateLayout::ShareOf(int memory) const {
  const auto share = [&](const UnitShape& unit) {
    return unit.bytes == 0 ? 0.0 : double(BytesIn(unit, memory)) / double(unit.bytes);
  };
  return std::max(share(block_), share(state_));
}

// A row is [channels] of [reach, channels], and all of anything else: of K/V that of a block, head
// by head. Each part of a row begins a place of its own, and the same part of the next row is
// behind it there.
void StateLayout::AddDivided(const LayerState& layer, const StateTensor& tensor, int memories,
                             UnitShape* unit) {
  const bool recurrent = layer.kind == StateKind::kRecurrent;
  const std::vector<int64_t>& shape = tensor.shape;
  const size_t bytes = tensor.bytes() * (recurrent ? 1 : kBlockTokens);
  const int64_t rows = recurrent && shape.size() == 2 ? shape[0] : 1;
  std::vector<Section> sections = tensor.sections;
  const size_t unit_bytes = recurrent ? RowBytes(tensor.dtype, 1) : 1;
  if (!recurrent) {
    const int64_t heads = layer.kv_heads();
    sections = {{heads, int64_t(bytes) / heads}};
  } else if (sections.empty()) {
    const int64_t row = int64_t(bytes / unit_bytes) / rows;
    sections = {shape.size() == 3 ? Section{shape[0], row / shape[0]} : Plain(row)};
  }
  const std::vector<Share> shares = Divide(sections, memories);
  CHECK(size_t(shares.back().end) * unit_bytes * size_t(rows) == bytes);
  std::vector<size_t> ends, places;
  for (int memory = 0; memory < memories; ++memory) ends.push_back(PartEnd(*unit, memory));
  for (const Share& share : shares) {
    size_t& end = ends[size_t(share.owner)];
    places.push_back(AlignUp(end));
    end = places.back() + size_t(share.end - share.begin) * unit_bytes * size_t(rows);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < shares.size(); ++i) {
      const size_t part = size_t(shares[i].end - shares[i].begin) * unit_bytes;
      unit->pieces.push_back({shares[i].owner, part, places[i] + size_t(row) * part});
    }
  }
  unit->pieces.back().bytes += AlignUp(bytes) - bytes;
  unit->bytes += AlignUp(bytes);
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
      if (layer.memory == LayerState::kAll) {
        divided_ = true;
        offsets.push_back(unit.bytes);
        places.push_back(unit.bytes);
        bytes.push_back(tensor.bytes());
        AddDivided(layer, tensor, spec.memories, &unit);
        continue;
      }
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
