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
    kTakeBlock,   // to: block comes into use
    kFreeBlock,   // from: block went out of use
    kCopyBlock,   // from: block, to: block
    kTakeState,   // to: state comes into use
    kFreeState,   // from: state went out of use
    kCopyState,   // from: state, to: state
    kClearState,  // to: state, zeros
  };

  Verb verb;
  uint32_t from = UINT32_MAX;
  uint32_t to = UINT32_MAX;
};

using Actions = std::vector<Action>;

}  // namespace reprise
