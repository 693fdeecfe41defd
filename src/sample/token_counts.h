// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace reprise {

// The tokens of one sequence, each once, with how often it was generated: what penalties ask for.
// Kept beside the sequence and added to token by token, so that a step costs the different tokens,
// not the length of the history.
//
// Thread safety: none. Costs: Add O(1).
class TokenCounts {
 public:
  struct Count {
    int32_t token = 0;
    uint32_t generated = 0;  // 0: only in the prompt
  };

  void AddPrompt(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) Find(token);
  }
  void AddGenerated(int32_t token) { ++Find(token).generated; }

  std::span<const Count> counts() const { return counts_; }  // by first sight

 private:
  Count& Find(int32_t token) {
    const auto [it, added] = places_.try_emplace(token, static_cast<uint32_t>(counts_.size()));
    if (added) counts_.push_back({token, 0});
    return counts_[it->second];
  }

  std::vector<Count> counts_;
  std::unordered_map<int32_t, uint32_t> places_;  // of each token in counts_
};

}  // namespace reprise
