// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string_view>
#include <unordered_map>

#include "base/rng.h"

namespace reprise {

// Sessions tells which requests of a session are beside its conversation. An agent names its
// session with every request: those of the conversation, which come back to what they have left
// behind, and others, which find a title or judge a command, and are never continued. What begins
// something new in a session whose conversation went on not long ago is taken for one of these,
// until somebody comes back to it.
//
// A name changes what goes first, never what is found.
//
// Thread safety: none. Costs: O(1); at most kSessionsMax are known, those that were used last.
class Sessions {
 public:
  static constexpr size_t kSessionsMax = 4096;
  static constexpr int64_t kRecentMs = 15 * 60'000;

  // A name within a tenant and a namespace; never 0.
  static uint64_t NameOf(uint32_t tenant, uint32_t space, std::string_view session) {
    const uint64_t hash = std::hash<std::string_view>{}(session);
    return Mix64(hash ^ Mix64(uint64_t{tenant} << 32 | space)) | 1;
  }

  // A request of the session (0: of none) has begun something new, or has come back to what was
  // there. Returns whether it is beside the conversation.
  bool Note(uint64_t session, bool is_new, int64_t now_ms) {
    if (session == 0) return false;
    const auto [at, added] = by_name_.try_emplace(session);
    if (added) {
      at->second = order_.insert(order_.begin(), {session, kNever});
      if (order_.size() > kSessionsMax) {
        by_name_.erase(order_.back().name);
        order_.pop_back();
      }
    } else {
      order_.splice(order_.begin(), order_, at->second);
    }
    Session& one = order_.front();
    if (!is_new) one.went_on_ms = now_ms;
    return is_new && one.went_on_ms != kNever && now_ms - one.went_on_ms <= kRecentMs;
  }
  size_t size() const { return order_.size(); }
  size_t bytes() const {
    constexpr size_t kSessionBytes = 128;  // in a list and a hash table
    return order_.size() * kSessionBytes;
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;
  struct Session {
    uint64_t name = 0;
    int64_t went_on_ms = kNever;
  };
  std::list<Session> order_;  // used last first
  std::unordered_map<uint64_t, std::list<Session>::iterator> by_name_;
};

}  // namespace reprise
