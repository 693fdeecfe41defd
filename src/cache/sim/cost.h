// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "state/spec.h"

namespace reprise {

// What the bookkeeping costs, measured on the index alone, for a model of this spec: a tree of
// 1,000,000 tokens (ten prompts of 100,000 that share half, and short ones).
struct BookkeepingCost {
  size_t tokens_stored = 0;
  double lookup_seconds = 0;  // of a prompt of 100,000 tokens; the least of many tries
  double metadata_share = 0;  // of the bytes of state
};
BookkeepingCost MeasureBookkeeping(const StateSpec& spec);

}  // namespace reprise
