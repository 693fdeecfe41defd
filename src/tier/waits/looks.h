// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "tier/waits/patience.h"

namespace reprise {

// Looks is what a shared home is being asked, and until when somebody waits for the answer. One
// that comes later is of use to others.
//
// Thread safety: none.
class Looks {
 public:
  static constexpr size_t kMax = 64;  // under way

  struct Look {
    size_t left = 0;        // paths of it that were not answered yet
    bool given_up = false;  // nobody waits for it any more
    int64_t until_ms = 0;
  };

  explicit Looks(Patience patience) : patience_(patience) {}

  bool HasRoom() const { return looks_.size() < kMax; }
  bool IsWaitedFor(uint64_t ticket) const {
    const auto at = looks_.find(ticket);
    return at != looks_.end() && !at->second.given_up;
  }
  void Add(uint64_t ticket, size_t paths, int64_t now_ms) {
    looks_[ticket] = {paths, false, patience_.Until(now_ms, 0)};
  }
  // One of its paths was answered: what is left of it.
  std::optional<Look> Answer(uint64_t ticket) {
    const auto at = looks_.find(ticket);
    if (at == looks_.end()) return std::nullopt;
    Look look = at->second;
    look.left = --at->second.left;
    if (look.left == 0) looks_.erase(at);
    return look;
  }
  // Calls `late` once with the ticket of each that nobody waits for any longer.
  template <typename Late>
  void Mind(int64_t now_ms, const Late& late) {
    if (patience_.endless()) return;
    for (auto& [ticket, look] : looks_) {
      if (look.given_up || now_ms < look.until_ms) continue;
      look.given_up = true;
      late(ticket);
    }
  }
  bool empty() const { return looks_.empty(); }

 private:
  const Patience patience_;
  std::unordered_map<uint64_t, Look> looks_;
};

}  // namespace reprise
