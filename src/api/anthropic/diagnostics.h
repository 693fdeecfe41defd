// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/chat/job.h"

namespace reprise::api::anthropic {

// What a prompt was made of, as hashes, to tell later what has changed.
struct PromptParts {
  std::string tenant;
  uint64_t tools = 0;
  uint64_t system = 0;
  uint64_t variables = 0;
  std::vector<uint64_t> turns;  // without those of the system
  int64_t tokens = 0;
};
PromptParts TakeParts(const ChatJob& job, const std::string& tenant, size_t token_count);

// The parts of the latest prompts, by the ids of the messages that answered them.
//
// Thread safety: all methods from any thread.
class PromptHistory {
 public:
  void Add(const std::string& id, PromptParts parts);
  // Only a tenant's own.
  std::optional<PromptParts> Find(const std::string& id, const std::string& tenant) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, PromptParts> parts_;
  std::deque<std::string> ids_;  // oldest first
  size_t turn_count_ = 0;
};

// Why a prompt could not go on from an earlier one: Anthropic's cache_miss_reason.
struct CacheMiss {
  std::string type;            // empty: it could
  int64_t tokens_before = -1;  // of the earlier prompt; -1: this type has no count
};
CacheMiss CompareParts(const std::optional<PromptParts>& before, const PromptParts& now);

}  // namespace reprise::api::anthropic
