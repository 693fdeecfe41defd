// SPDX-License-Identifier: Apache-2.0
#include "cache/store/state_store.h"

#include <initializer_list>

namespace reprise {

Result<std::unique_ptr<StateStore>> StateStore::Make(const StateSpec& spec, const Sizes& sizes,
                                                     DeviceMemory& memory) {
  std::unique_ptr<StateStore> store(new StateStore(spec, &memory));
  REPRISE_TRY(store->blocks_.Reserve(memory, store->layout_.block_bytes(), sizes.block_count));
  REPRISE_TRY(store->states_.Reserve(memory, store->layout_.state_bytes(), sizes.state_count));
  store->memory_ = {store->blocks_.data(), store->states_.data(), &store->layout_};
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

void StateStore::Apply(std::span<const Action> actions, size_t resident_limit) {
  const auto take = [&](UnitArena& arena, uint32_t id) {
    arena.Take(id);
    const size_t resident = resident_bytes();
    if (resident > resident_limit) GiveBack(resident - resident_limit);
  };
  for (const Action& action : actions) {
    switch (action.verb) {
      case Action::Verb::kTakeBlock:
        take(blocks_, action.to);
        break;
      case Action::Verb::kFreeBlock:
        blocks_.Free(action.from, now_ms_);
        break;
      case Action::Verb::kCopyBlock:
        device_->Copy(blocks_.at(action.to), blocks_.at(action.from), layout_.block_bytes());
        break;
      case Action::Verb::kTakeState:
        take(states_, action.to);
        break;
      case Action::Verb::kFreeState:
        states_.Free(action.from, now_ms_);
        break;
      case Action::Verb::kCopyState:
        device_->Copy(states_.at(action.to), states_.at(action.from), layout_.state_bytes());
        break;
      case Action::Verb::kClearState:
        device_->Zero(states_.at(action.to), layout_.state_bytes());
        break;
    }
  }
}

}  // namespace reprise
