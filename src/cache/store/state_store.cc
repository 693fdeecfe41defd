// SPDX-License-Identifier: Apache-2.0
#include "cache/store/state_store.h"

#include <cstring>
#include <initializer_list>

#include "base/check.h"
#include "state/ids.h"

namespace reprise {
namespace {

// An exponent of all ones is NaN or infinity.
template <typename Word>
bool WordsAreFinite(const std::byte* data, size_t count, Word exponent) {
  bool bad = false;  // no early exit: the loop vectorises, and finite is the rule
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data + i * sizeof(Word), sizeof(Word));
    bad |= (word & exponent) == exponent;
  }
  return !bad;
}

// Types that are not floats are finite.
bool IsFinite(DType dtype, const std::byte* data, size_t element_count) {
  switch (dtype) {
    case DType::kF32:
      return WordsAreFinite<uint32_t>(data, element_count, 0x7f800000u);
    case DType::kF16:
      return WordsAreFinite<uint16_t>(data, element_count, 0x7c00u);
    case DType::kBF16:
      return WordsAreFinite<uint16_t>(data, element_count, 0x7f80u);
    default:
      return true;
  }
}

size_t ElementCount(const StateTensor& tensor) {
  size_t count = 1;
  for (const int64_t extent : tensor.shape) count *= static_cast<size_t>(extent);
  return count;
}

}  // namespace

Result<std::unique_ptr<StateStore>> StateStore::Make(const StateSpec& spec, const Sizes& sizes) {
  std::unique_ptr<StateStore> store(new StateStore(spec));
  REPRISE_TRY(store->blocks_.Reserve(store->layout_.block_bytes(), sizes.block_count));
  REPRISE_TRY(store->slots_.Reserve(store->layout_.slot_bytes(), sizes.slot_count));
  REPRISE_TRY(store->snapshots_.Reserve(store->layout_.slot_bytes(), sizes.snapshot_count));
  store->memory_ = {store->blocks_.data(), store->slots_.data(), &store->layout_};
  return store;
}

size_t StateStore::resident_bytes() const {
  return blocks_.resident_bytes() + slots_.resident_bytes() + snapshots_.resident_bytes();
}

bool StateStore::GiveBack(size_t bytes) {
  const size_t before = resident_bytes();
  for (UnitArena* arena : {&snapshots_, &blocks_, &slots_}) {
    const size_t won = before - resident_bytes();
    if (won < bytes) arena->Discard(bytes - won);
  }
  return resident_bytes() < before;
}

void StateStore::Apply(std::span<const Action> actions, size_t resident_limit) {
  const auto take = [&](UnitArena& arena, uint32_t id) {
    arena.Take(id);
    const size_t resident = resident_bytes();
    if (resident > resident_limit) GiveBack(resident - resident_limit);
  };
  const size_t slot_bytes = layout_.slot_bytes();
  for (const Action& action : actions) {
    switch (action.verb) {
      case Action::Verb::kTakeBlock:
        take(blocks_, action.to);
        break;
      case Action::Verb::kFreeBlock:
        blocks_.Free(action.from);
        break;
      case Action::Verb::kCopyBlock:
        std::memcpy(blocks_.at(action.to), blocks_.at(action.from), layout_.block_bytes());
        break;
      case Action::Verb::kTakeSnapshot:
        take(snapshots_, action.to);
        break;
      case Action::Verb::kFreeSnapshot:
        snapshots_.Free(action.from);
        break;
      case Action::Verb::kTakeSlot:
        take(slots_, action.to);
        break;
      case Action::Verb::kFreeSlot:
        slots_.Free(action.from);
        break;
      case Action::Verb::kSaveSnapshot:
        std::memcpy(snapshots_.at(action.to), slots_.at(action.from), slot_bytes);
        break;
      case Action::Verb::kRestoreSnapshot:
        std::memcpy(slots_.at(action.to), snapshots_.at(action.from), slot_bytes);
        break;
      case Action::Verb::kClearSlot:
        std::memset(slots_.at(action.to), 0, slot_bytes);
        break;
    }
  }
}

bool StateStore::SlotIsFinite(SlotId slot) const {
  for (size_t e = 0; e < spec_.layers.size(); ++e) {
    const LayerState& layer = spec_.layers[e];
    if (layer.kind != StateKind::kRecurrent) continue;
    for (size_t t = 0; t < layer.tensors.size(); ++t) {
      const StateTensor& tensor = layer.tensors[t];
      const std::byte* data = slots_.at(slot.value) + layout_.offset(e, t);
      if (!IsFinite(tensor.dtype, data, ElementCount(tensor))) return false;
    }
  }
  return true;
}

bool StateStore::RowsAreFinite(BlockId block, int begin, int end) const {
  CHECK(0 <= begin && begin <= end && end <= kBlockTokens);
  for (size_t e = 0; e < spec_.layers.size(); ++e) {
    const LayerState& layer = spec_.layers[e];
    if (layer.kind == StateKind::kRecurrent) continue;
    for (size_t t = 0; t < layer.tensors.size(); ++t) {
      const StateTensor& tensor = layer.tensors[t];  // [heads, kBlockTokens, width] in the block
      if (IsQuantised(tensor.dtype)) continue;
      const size_t width = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
      const size_t heads = ElementCount(tensor) / width;
      const size_t row_bytes = RowBytes(tensor.dtype, static_cast<int64_t>(width));
      const std::byte* data = blocks_.at(block.value) + layout_.offset(e, t);
      for (size_t h = 0; h < heads; ++h) {
        const std::byte* rows = data + (h * kBlockTokens + size_t(begin)) * row_bytes;
        if (!IsFinite(tensor.dtype, rows, size_t(end - begin) * width)) return false;
      }
    }
  }
  return true;
}

}  // namespace reprise
