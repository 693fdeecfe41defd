// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/thread_pool.h"

namespace reprise {

// A 128-bit fingerprint of texts and large byte ranges, in the order they were added. Not for
// secrets: it tells models apart, it does not withstand an author of two models.
//
// Costs: a large range is read once at the speed of memory, on all threads; the result does not
// depend on their number.
class Digest {
 public:
  Digest();
  ~Digest();

  void Add(std::string_view text);
  void AddBytes(ThreadPool& pool, std::span<const std::byte> bytes);
  std::string Hex() const;  // 32 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
