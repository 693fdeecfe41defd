// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace reprise::cli {

// One model's state, when the memory of all of them is shared out.
struct StateShare {
  bool awake = false;  // requests may run
  size_t least = 0;    // what it must have to run one request of its context
  size_t used = 0;     // what it holds now, running and cached
  int64_t last_use_ms = 0;
  size_t budget = 0;  // out: what it may hold
};

// Shares `bytes` out among the states of all models.
//
// 1. The budgets never add up to more than `bytes`, if that holds at least the least of all models
//    that are awake.
// 2. A model that is awake gets at least its least; a model that sleeps keeps what it holds while
//    there is room, and gets no more.
// 3. What nobody holds is divided equally among those that are awake, so that each can grow.
// 4. If less than one part in 16 is free, the model that was used longest ago gives some up, never
//    the one that was used last: first what it has above its least, then, if it sleeps, the rest.
void ShareOutState(size_t bytes, std::span<StateShare> shares);

}  // namespace reprise::cli
