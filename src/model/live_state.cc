// SPDX-License-Identifier: Apache-2.0
#include "model/live_state.h"

#include "base/check.h"

namespace reprise {

Result<LiveState> LiveState::Create(const StateSpec& spec, int sequence_count, int64_t token_max,
                                    DeviceMemory& memory) {
  CHECK(sequence_count > 0 && token_max > 0);
  LiveState state;
  state.device_ = &memory;
  state.layout_ = StateLayout(spec);
  state.token_max_ = token_max;
  state.sequence_blocks_ = size_t((token_max + kBlockTokens - 1) / kBlockTokens);
  state.extents_.resize(size_t(sequence_count));
  const size_t block_count = state.sequence_blocks_ * size_t(sequence_count);
  for (size_t b = 0; b < block_count; ++b) state.block_ids_.push_back(BlockId{uint32_t(b)});
  const auto take = [&](const UnitShape& unit, size_t count, DeviceBuffer* out) {
    if (unit.bytes == 0) return OkStatus();
    REPRISE_ASSIGN(*out, ReserveUnits(memory, unit, count));
    return memory.Commit(out->data(), unit.bytes * count);
  };
  REPRISE_TRY(take(state.layout_.block(), block_count, &state.blocks_));
  REPRISE_TRY(take(state.layout_.state(), size_t(sequence_count), &state.states_));
  return state;
}

SequenceSlice LiveState::Next(int sequence, uint32_t row_begin, uint32_t row_count) const {
  CHECK(length(sequence) + row_count <= token_max_);
  return {row_begin, row_count, extent(sequence), blocks(sequence), StateId{uint32_t(sequence)}};
}

void LiveState::Advance(int sequence, int64_t token_count) {
  Extent& extent = extents_[size_t(sequence)];
  extent = extent + int32_t(token_count);
}

void LiveState::Keep(int sequence, int32_t kept) {
  Extent& extent = extents_[size_t(sequence)];
  CHECK(kept <= extent.physical);
  extent.physical = kept;
}

void LiveState::Clear(int sequence) {
  extents_[size_t(sequence)] = {};
  device_->Zero(place(sequence), layout_.state_bytes());
}

std::vector<std::byte> LiveState::SaveState(int sequence) const {
  std::vector<std::byte> saved(layout_.state_bytes());
  device_->Download(saved.data(), place(sequence), saved.size());
  return saved;
}

void LiveState::Restore(int sequence, int64_t length, const std::vector<std::byte>& saved) {
  const Extent now = extent(sequence);
  CHECK(saved.size() == layout_.state_bytes() && length <= now.logical);
  CHECK(now.logical == now.physical);
  device_->Upload(place(sequence), saved.data(), saved.size());
  extents_[size_t(sequence)] = {int32_t(length), int32_t(length)};
}

StateMemory LiveState::memory() const {
  return {blocks_.data(), states_.data(), &layout_, device_};
}

}  // namespace reprise
