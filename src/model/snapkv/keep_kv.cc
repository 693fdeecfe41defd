// SPDX-License-Identifier: Apache-2.0
#include "model/snapkv/keep_kv.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/keep_ops.h"

namespace reprise {
namespace {

KvShape ShapeOf(const LayerState& layer) {
  KvShape shape;
  shape.kv_heads = layer.kv_heads();
  shape.head_dim = int(layer.tensors[0].shape.back());
  shape.value_in_key = layer.tensors.size() == 1;
  shape.value_dim = shape.value_in_key ? shape.head_dim : int(layer.tensors[1].shape.back());
  shape.dtype = layer.tensors[0].dtype;
  return shape;
}

// The last rows, for each head of the widest layer that has a window.
std::vector<int32_t> LastRows(const StateSpec& spec, const KeptKv& kept) {
  int heads = 0;
  for (const LayerState& layer : spec.layers) {
    if (layer.kind == StateKind::kWindowKv) heads = std::max(heads, layer.kv_heads());
  }
  std::vector<int32_t> rows(size_t(heads) * size_t(kept.kept));
  for (int head = 0; head < heads; ++head) {
    const auto begin = rows.begin() + int64_t{head} * kept.kept;
    std::iota(begin, begin + kept.kept, kept.row_count - kept.kept);
  }
  return rows;
}

// What a device is told.
struct DeviceKeep {
  DevicePtr<const uint32_t> blocks;
  DevicePtr<const int32_t> lists;
  DevicePtr<const int32_t> tail;
};

DeviceKeep Upload(const OpContext& context, const KeptKv& kept, std::span<const uint32_t> blocks,
                  std::span<const int32_t> last) {
  DeviceMemory& device = context.backend->memory();
  const auto upload = [&]<typename T>(std::span<const T> values) {
    const DevicePtr<T> place = context.scratch->Take<T>(values.size());
    if (!values.empty()) device.UploadArray(place, values);
    return DevicePtr<const T>(place);
  };
  return {upload(blocks), upload(kept.lists), upload(last)};
}

void KeepLayer(const OpContext& context, const StateSpec& spec, size_t index,
               const StateMemory& memory, const KeptKv& kept, const DeviceKeep& keep) {
  const LayerState& layer = spec.layers[index];
  if (layer.kind == StateKind::kRecurrent) return;
  const StateLayout& layout = *memory.layout;
  KeptRows rows;
  rows.block_memory = memory.blocks_in(layer.memory);
  rows.block_bytes = layout.block_bytes(layer.memory);
  rows.from = keep.blocks;
  rows.to = keep.blocks + int64_t(kept.from.size());
  rows.rows = layer.kind == StateKind::kFullKv
                  ? keep.lists + int64_t(layout.list_begin(index) * size_t(kept.kept))
                  : keep.tail;
  rows.count = kept.kept;
  const KvPlace place = {layout.place(index, 0),
                         layer.tensors.size() > 1 ? layout.place(index, 1) : 0};
  KeepRows(context, place, ShapeOf(layer), rows);
}

}  // namespace

Status KeepKv(std::span<const OpContext> devices, const StateSpec& spec, const StateMemory& memory,
              const KeptKv& kept) {
  const size_t list_count = memory.layout->list_count();
  const auto count = static_cast<size_t>(kept.kept);
  CHECK(kept.kept > 0 && kept.kept <= kept.row_count && kept.lists.size() == list_count * count);
  CHECK(kept.from.size() * kBlockTokens >= size_t(kept.row_count));
  CHECK(kept.to.size() * kBlockTokens >= count);
  const std::vector<int32_t> last = LastRows(spec, kept);
  std::vector<uint32_t> blocks;
  for (const BlockId block : kept.from) blocks.push_back(block.value);
  for (const BlockId block : kept.to) blocks.push_back(block.value);
  const size_t words = kept.lists.size() + last.size() + blocks.size();
  constexpr size_t kAligned = 4 * 64;
  for (const OpContext& one : devices) {
    REPRISE_TRY(one.scratch->Provide(words * sizeof(int32_t) + kAligned));
  }
  for (size_t device = 0; device < devices.size(); ++device) {
    const OpContext& context = devices[device];
    const ScratchScope scope(*context.scratch);
    const DeviceKeep keep = Upload(context, kept, blocks, last);
    for (size_t index = 0; index < spec.layers.size(); ++index) {
      if (std::max(spec.layers[index].memory, 0) != int(device)) continue;
      KeepLayer(context, spec, index, memory, kept, keep);
    }
    REPRISE_TRY(context.backend->TakeError());
  }
  return OkStatus();
}

}  // namespace reprise
