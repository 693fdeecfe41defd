// SPDX-License-Identifier: Apache-2.0
#include "cache/store/state_store.h"

#include <cstring>
#include <initializer_list>

namespace reprise {

Result<std::unique_ptr<StateStore>> StateStore::Make(const StateSpec& spec, const Sizes& sizes) {
  std::unique_ptr<StateStore> store(new StateStore(spec));
  REPRISE_TRY(store->blocks_.Reserve(store->layout_.block_bytes(), sizes.block_count));
  REPRISE_TRY(store->slots_.Reserve(store->layout_.slot_bytes(), sizes.slot_count));
  REPRISE_TRY(store->snapshots_.Reserve(store->layout_.slot_bytes(), sizes.snapshot_count));
  store->memory_ = {store->blocks_.data(), store->slots_.data(), store->snapshots_.data(),
                    &store->layout_};
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

}  // namespace reprise
