// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

namespace reprise::api {

// Bounds what all replies together keep until they are complete, beyond their text: the
// log-probabilities of an answer in one piece. Counted in entries (a token and its probability),
// some hundred bytes each.
//
// Thread safety: all methods from any thread.
class KeptBudget {
 public:
  static constexpr size_t kEntriesMax = size_t{1} << 21;       // of all replies
  static constexpr size_t kReplyEntriesMax = size_t{1} << 19;  // of one

  // False, and nothing taken, if there is no room for them.
  bool Take(size_t entries) {
    if (taken_.fetch_add(entries) + entries <= kEntriesMax) return true;
    Give(entries);
    return false;
  }
  void Give(size_t entries) { taken_.fetch_sub(entries); }
  size_t taken() const { return taken_; }

 private:
  std::atomic<size_t> taken_{0};
};

}  // namespace reprise::api
