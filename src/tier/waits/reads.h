// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "tier/plan.h"
#include "tier/transfers.h"
#include "tier/waits/patience.h"

namespace reprise {

// Reads is what is being read of a home, and for whom: how many bytes, until when somebody waits,
// and whether anything still comes. A read may be over for the one who waits, and still hold its
// thread and its bytes.
//
// Thread safety: none.
class Reads {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 30;

  struct Read {
    ReadPlan found;
    std::string record;  // the first of them
    size_t bytes = 0;
    std::shared_ptr<Transfers::ReadProgress> progress;
    bool given_up = false;  // nobody waits for it any more

   private:
    friend class Reads;
    int64_t until_ms = 0;
    bool begun = false;  // when somebody last looked, as are the parts that had come,
    uint64_t parts = 0;
    int64_t came_ms = 0;  // and when there were more than before
    bool stuck = false;   // and nothing has come for long
  };

  explicit Reads(Patience patience) : patience_(patience) {}

  bool HasRoom(size_t bytes) const { return reads_.empty() || bytes_ + bytes <= kBytesMax; }

  void Add(uint64_t ticket, Read read, int64_t now_ms) {
    bytes_ += read.bytes;
    read.until_ms = patience_.Until(now_ms, bytes_);
    read.came_ms = now_ms;
    reads_.emplace(ticket, std::move(read));
  }
  // REQUIRES: it was added.
  Read End(uint64_t ticket) {
    const auto at = reads_.find(ticket);
    CHECK(at != reads_.end());
    Read read = std::move(at->second);
    reads_.erase(at);
    bytes_ -= read.bytes;
    return read;
  }

  // Calls `stuck` once with a read of which nothing comes: its thread may hang, and nothing more is
  // read. Calls `late` once with the ticket and the read that nobody waits for any longer.
  template <typename Stuck, typename Late>
  void Mind(int64_t now_ms, const Stuck& stuck, const Late& late) {
    if (patience_.endless()) return;
    for (auto& [ticket, read] : reads_) {
      const bool begun = read.progress->begun;
      const uint64_t parts = read.progress->parts;
      if (!begun || !read.begun || parts != read.parts) read.came_ms = now_ms;
      read.begun = begun;
      read.parts = parts;
      if (now_ms - read.came_ms >= patience_.timeout_ms && !std::exchange(read.stuck, true)) {
        stuck(read);
      }
      if (read.given_up || (!read.stuck && now_ms < read.until_ms)) continue;
      read.given_up = true;
      late(ticket, read);
    }
  }

 private:
  const Patience patience_;
  std::unordered_map<uint64_t, Read> reads_;
  size_t bytes_ = 0;
};

}  // namespace reprise
