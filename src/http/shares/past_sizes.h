// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace reprise::http {

// What requests of a share turned out to be, by route. A request that is too large for a small
// one's thread has taken time there before that is known. Where nearly all that a share sends is
// so, its next requests begin as heavy ones; two small ones, and they begin as small again.
//
// Thread safety: none; the server thread. Costs: O(log kKnownMax).
class PastSizes {
 public:
  static constexpr int kHeavyAt = 4;  // more heavy ones than twice the small ones
  static constexpr int kMost = 2 * kHeavyAt - 1;
  static constexpr size_t kKnownMax = 4096;  // then all is forgotten

  // `route`: anything that tells routes apart.
  bool BeginsHeavy(const std::string& share, const void* route) const {
    return CountOf(share, route) >= kHeavyAt;
  }
  // Whether it matters what the next one is: of others nothing is noted but heavy ones.
  bool Knows(const std::string& share, const void* route) const {
    return CountOf(share, route) > 0;
  }
  void Note(const std::string& share, const void* route, bool heavy) {
    if (counts_.size() >= kKnownMax) counts_.clear();
    int& count = counts_[{share, route}];
    count = heavy ? std::min(count + 1, kMost) : count - 2;
    if (count <= 0) counts_.erase({share, route});
  }

  size_t size() const { return counts_.size(); }

 private:
  using Key = std::pair<std::string, const void*>;
  int CountOf(const std::string& share, const void* route) const {
    const auto found = counts_.find({share, route});
    return found == counts_.end() ? 0 : found->second;
  }

  std::map<Key, int> counts_;  // none below 1
};

}  // namespace reprise::http
