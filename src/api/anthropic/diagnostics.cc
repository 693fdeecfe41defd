// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/diagnostics.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

namespace reprise::api::anthropic {
namespace {

constexpr size_t kPromptsMax = 1024;
constexpr size_t kTurnsMax = size_t{1} << 17;  // of all prompts together: a megabyte

uint64_t Combine(uint64_t hash, std::string_view text) {
  return (hash ^ std::hash<std::string_view>()(text)) * 0x9E3779B97F4A7C15u;
}

// Thinking and ids are left out: templates drop the one from history, and few show the other.
uint64_t HashTurn(const ChatTurn& turn) {
  uint64_t hash = Combine(Combine(1, turn.role), turn.content);
  for (const ToolCall& call : turn.calls) hash = Combine(Combine(hash, call.name), call.arguments);
  return hash;
}

}  // namespace

PromptParts TakeParts(const ChatJob& job, const std::string& tenant, size_t token_count) {
  PromptParts parts;
  parts.tenant = tenant;
  parts.tools = Combine(1, job.tools);
  parts.variables = Combine(1, job.variables);
  parts.tokens = static_cast<int64_t>(token_count);
  bool leading = true;
  for (const ChatTurn& turn : job.turns) {
    leading = leading && turn.role == "system";
    if (leading) {
      parts.system = Combine(parts.system, turn.content);
    } else {
      parts.turns.push_back(HashTurn(turn));
    }
  }
  return parts;
}

void PromptHistory::Add(const std::string& id, PromptParts parts) {
  if (parts.turns.size() > kTurnsMax) return;
  std::lock_guard lock(mutex_);
  turn_count_ += parts.turns.size();
  ids_.push_back(id);
  parts_[id] = std::move(parts);
  while (ids_.size() > kPromptsMax || turn_count_ > kTurnsMax) {
    const auto oldest = parts_.find(ids_.front());
    turn_count_ -= oldest->second.turns.size();
    parts_.erase(oldest);
    ids_.pop_front();
  }
}

std::optional<PromptParts> PromptHistory::Find(const std::string& id,
                                               const std::string& tenant) const {
  std::lock_guard lock(mutex_);
  const auto found = parts_.find(id);
  if (found == parts_.end() || found->second.tenant != tenant) return std::nullopt;
  return found->second;
}

CacheMiss CompareParts(const std::optional<PromptParts>& before, const PromptParts& now) {
  if (!before) return {"previous_message_not_found"};
  if (before->tools != now.tools) return {"tools_changed", before->tokens};
  if (before->system != now.system) return {"system_changed", before->tokens};
  const bool goes_on = before->turns.size() <= now.turns.size() &&
                       std::equal(before->turns.begin(), before->turns.end(), now.turns.begin());
  if (!goes_on) return {"messages_changed", before->tokens};
  if (before->variables != now.variables) return {"unavailable"};
  return {};
}

}  // namespace reprise::api::anthropic
