// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/thread_pool.h"

namespace reprise::cpu {

// Which product came behind which, the last time: steps of one model ask for the same ones in the
// same order. With that every thread knows the weights that it will read next, and asks for them
// while it waits for the others at the end of an op, and while the op between two products runs.
// Nothing but time depends on it.
//
// Thread safety: one thread at a time, as ops.
class ProductOrder {
 public:
  using Place = const std::byte*;

  // The product whose weights begin at `weights` is about to run; each thread of `pool` reads its
  // own part of them from starts[thread] on. Tells the pool what the threads read in the next one.
  void Begin(Place weights, std::span<const Place> starts, ThreadPool& pool);
  // A product of which nothing is known.
  void Break() { last_ = nullptr; }

 private:
  struct Product {
    Place next = nullptr;
    std::vector<Place> starts;  // [threads]
  };

  std::unordered_map<Place, Product> products_;
  Place last_ = nullptr;
};

}  // namespace reprise::cpu
