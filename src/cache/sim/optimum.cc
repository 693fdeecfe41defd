// SPDX-License-Identifier: Apache-2.0
#include "cache/sim/optimum.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/rng.h"
#include "state/ids.h"

namespace reprise {
namespace {

constexpr uint32_t kNever = UINT32_MAX;

struct Access {
  uint32_t block;
  uint32_t next_use;  // the request that uses it next
};

// Blocks by request. A block is what it holds and everything before it.
struct Accesses {
  std::vector<Access> list;
  std::vector<size_t> begin;  // by request, and the end
  size_t block_count = 0;
};

Accesses ListAccesses(const Trace& trace) {
  Accesses all;
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<TokenId> prompt;
  for (const TraceRequest& request : trace.requests) {
    all.begin.push_back(all.list.size());
    trace.PromptOf(request, &prompt);
    prompt.pop_back();  // one token is always run
    uint64_t hash = 1;
    for (size_t i = 0; i + kBlockTokens <= prompt.size(); i += kBlockTokens) {
      for (size_t j = i; j < i + kBlockTokens; ++j) {
        hash = Mix64(hash ^ static_cast<uint32_t>(prompt[j]));
      }
      const auto it = ids.try_emplace(hash, static_cast<uint32_t>(ids.size())).first;
      all.list.push_back({it->second, kNever});
    }
  }
  all.begin.push_back(all.list.size());
  all.block_count = ids.size();
  std::vector<uint32_t> next(all.block_count, kNever);
  for (size_t request = trace.requests.size(); request-- > 0;) {
    for (size_t i = all.begin[request]; i < all.begin[request + 1]; ++i) {
      all.list[i].next_use = next[all.list[i].block];
      next[all.list[i].block] = static_cast<uint32_t>(request);
    }
  }
  return all;
}

uint64_t CountHits(const Accesses& all, size_t capacity) {
  std::vector<uint32_t> held(all.block_count, kNever);  // by block: its next use
  std::priority_queue<std::pair<uint32_t, uint32_t>> furthest;
  size_t held_count = 0;
  uint64_t hits = 0;
  for (size_t request = 0; request + 1 < all.begin.size(); ++request) {
    const auto prompt = std::span(all.list).subspan(all.begin[request],
                                                    all.begin[request + 1] - all.begin[request]);
    size_t found = 0;
    while (found < prompt.size() && held[prompt[found].block] != kNever) ++found;
    hits += found;
    for (const Access& access : prompt) {
      uint32_t& next = held[access.block];
      held_count -= next != kNever ? 1 : 0;
      next = access.next_use;
      if (next == kNever) continue;  // not worth keeping
      ++held_count;
      furthest.emplace(next, access.block);
    }
    while (held_count > capacity) {
      const auto [next, block] = furthest.top();
      furthest.pop();
      if (held[block] != next) continue;
      held[block] = kNever;
      --held_count;
    }
  }
  return hits;
}

}  // namespace

std::vector<uint64_t> FindOptimum(const Trace& trace, std::span<const double> fractions) {
  const Accesses all = ListAccesses(trace);
  std::vector<uint64_t> tokens;
  for (const double fraction : fractions) {
    const auto capacity = static_cast<size_t>(fraction * static_cast<double>(all.block_count));
    tokens.push_back(CountHits(all, capacity) * kBlockTokens);
  }
  return tokens;
}

}  // namespace reprise
