// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace reprise::api {

// Watches a reply that has no limit but the context, so that the log says when it runs away: a
// model in a loop computes for minutes and looks like a server that hangs.
//
// Thread safety: none.
class LongReply {
 public:
  static constexpr int64_t kLongTokens = 8192;

  enum class Finding { kNothing, kLong, kLoop };

  // Finds a loop at most once for each doubling of the reply, and so its length from kLongTokens.
  Finding Add(int32_t token);
  int64_t tokens() const { return count_; }

 private:
  static constexpr size_t kSeen = 512;        // last tokens that are looked at
  static constexpr size_t kPeriodMax = 128;   // tokens of what is repeated
  static constexpr int64_t kLookEvery = 256;  // tokens

  bool Repeats() const;

  std::array<int32_t, kSeen> last_ = {};  // token i at i % kSeen
  int64_t count_ = 0;
  int64_t next_loop_ = kSeen;  // tokens from which a loop is told
  int64_t next_long_ = kLongTokens;
};

inline LongReply::Finding LongReply::Add(int32_t token) {
  last_[static_cast<size_t>(count_) % kSeen] = token;
  ++count_;
  if (count_ % kLookEvery != 0) return Finding::kNothing;
  if (count_ >= next_loop_ && Repeats()) {
    next_loop_ = 2 * count_;
    return Finding::kLoop;
  }
  if (count_ < next_long_) return Finding::kNothing;
  next_long_ = 2 * count_;
  return Finding::kLong;
}

// Whether the last tokens are one text again and again. Most periods fail at the first tokens.
inline bool LongReply::Repeats() const {
  const auto at = [this](size_t back) {
    return last_[(static_cast<size_t>(count_) - 1 - back) % kSeen];
  };
  for (size_t period = 1; period <= kPeriodMax; ++period) {
    size_t back = 0;
    while (back + period < kSeen && at(back) == at(back + period)) ++back;
    if (back + period == kSeen) return true;
  }
  return false;
}

}  // namespace reprise::api
