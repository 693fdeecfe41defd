// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "state/ids.h"

namespace reprise {

// What the tree decided and the store has to do, in order. `from` and `to` are ids of the kinds
// that the verb names.
struct Action {
  enum class Verb : uint8_t {
    kTakeBlock,        // to: block comes into use
    kFreeBlock,        // from: block went out of use
    kCopyBlock,        // from: block, to: block
    kTakeSnapshot,     // to: snapshot comes into use
    kFreeSnapshot,     // from: snapshot went out of use
    kTakeSlot,         // to: slot comes into use
    kFreeSlot,         // from: slot went out of use
    kSaveSnapshot,     // from: slot, to: snapshot
    kRestoreSnapshot,  // from: snapshot, to: slot
    kClearSlot,        // to: slot, zeros
  };

  Verb verb;
  uint32_t from = UINT32_MAX;
  uint32_t to = UINT32_MAX;
};

using Actions = std::vector<Action>;

}  // namespace reprise
