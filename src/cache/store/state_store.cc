// SPDX-License-Identifier: Apache-2.0
#include "cache/store/state_store.h"

#include <initializer_list>
#include <vector>

namespace reprise {

StateStore::StateStore(const StateSpec& spec, DeviceMemory* device)
    : layout_(spec), device_(device), fills_beside_(FillsBeside(spec, *device)), copies_(device) {}

bool StateStore::FillsBeside(const StateSpec& spec, const DeviceMemory& memory) {
  return memory.copies_by_caller() && spec.state_bytes() > StateCopies::kAtOnceBytes;
}

Result<std::unique_ptr<StateStore>> StateStore::Make(const StateSpec& spec, const Sizes& sizes,
                                                     DeviceMemory& memory) {
  std::unique_ptr<StateStore> store(new StateStore(spec, &memory));
  REPRISE_TRY(store->blocks_.Reserve(memory, store->layout_.block(), sizes.block_count));
  REPRISE_TRY(store->states_.Reserve(memory, store->layout_.state(), sizes.state_count));
  store->memory_ = {store->blocks_.data(), store->states_.data(), &store->layout_, &memory};
  return store;
}

size_t StateStore::resident_bytes() const {
  return blocks_.resident_bytes() + states_.resident_bytes();
}

bool StateStore::GiveBack(size_t bytes, int64_t unused_ms) {
  const size_t before = resident_bytes();
  for (UnitArena* arena : {&states_, &blocks_}) {
    const size_t won = before - resident_bytes();
    if (won < bytes) arena->Discard(bytes - won, now_ms_ - unused_ms);
  }
  return resident_bytes() < before;
}

// Returns the bytes that are missing.
size_t StateStore::Want(std::span<const BlockId> blocks, std::span<const StateId> states) {
  std::vector<uint32_t> block_ids, state_ids;
  for (const BlockId id : blocks) block_ids.push_back(id.value);
  for (const StateId id : states) state_ids.push_back(id.value);
  return blocks_.Want(block_ids) + states_.Want(state_ids);
}

Status StateStore::BackWanted() {
  const Status backed = blocks_.Back();
  return backed.ok() ? states_.Back() : backed;
}

Status StateStore::Back(std::span<const BlockId> blocks, std::span<const StateId> states,
                        size_t resident_limit) {
  const size_t missing = Want(blocks, states);
  const size_t resident = resident_bytes() + missing;
  if (resident > resident_limit) GiveBack(resident - resident_limit);
  const Status backed = BackWanted();
  return !backed.ok() && GiveBack(SIZE_MAX) ? BackWanted() : backed;
}

void StateStore::BackAhead(std::span<const BlockId> blocks, std::span<const StateId> states,
                           size_t resident_limit) {
  const size_t missing = Want(blocks, states);
  if (missing == 0 || resident_bytes() + missing > resident_limit) return;
  (void)BackWanted();  // what is refused now is asked for again when it is taken
}

// From another state, or with zeros.
void StateStore::Fill(uint32_t to, std::optional<uint32_t> from) {
  const DevicePtr<std::byte> to_at = states_.at(to);
  const DevicePtr<const std::byte> from_at = states_.at(from.value_or(to));
  const size_t bytes = layout_.state_bytes();
  if (fills_beside_) return copies_.Begin(to, to_at, from, from_at, bytes);
  from ? device_->Copy(to_at, from_at, bytes) : device_->Zero(to_at, bytes);
}

void StateStore::Apply(std::span<const Action> actions) {
  for (const Action& action : actions) {
    switch (action.verb) {
      case Action::Verb::kTakeBlock:
        blocks_.Take(action.to);
        if (clear_taken_) device_->Zero(blocks_.at(action.to), layout_.block_bytes());
        break;
      case Action::Verb::kFreeBlock:
        blocks_.Free(action.from, now_ms_);
        break;
      case Action::Verb::kCopyBlock:
        device_->Copy(blocks_.at(action.to), blocks_.at(action.from), layout_.block_bytes());
        break;
      case Action::Verb::kTakeState:
        states_.Take(action.to);
        break;
      case Action::Verb::kFreeState:
        copies_.Free(action.from);
        states_.Free(action.from, now_ms_);
        break;
      case Action::Verb::kCopyState:
        Fill(action.to, action.from);
        break;
      case Action::Verb::kClearState:
        Fill(action.to, std::nullopt);
        break;
    }
  }
}

}  // namespace reprise
