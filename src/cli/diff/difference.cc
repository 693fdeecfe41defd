// SPDX-License-Identifier: Apache-2.0
#include "cli/diff/difference.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/json_writer.h"
#include "cache/sim/simulate.h"

namespace reprise::cli {
namespace {

constexpr size_t kShownBytes = 60;

// Where the character begins that has the byte `at`.
size_t CharacterStart(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

template <typename Sequence>
size_t CommonPrefix(const Sequence& a, const Sequence& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

// Requests with these prompts, one after another, on a cache with room for all of them.
Result<size_t> ReusedTokens(const std::vector<const api::Prompt*>& prompts, const StateSpec& spec,
                            int32_t snapshot_gap) {
  Trace trace;
  SimulationOptions options;
  options.spec = spec;
  options.cache.snapshot_gap = snapshot_gap;
  options.cache.budget_bytes = size_t{1} << 49;
  options.cache.context_tokens = 64;
  for (const api::Prompt* prompt : prompts) {
    TraceRequest request;
    request.time_ms = int64_t(trace.requests.size()) * 1000;
    request.boundaries = prompt->boundaries;
    request.prompt_tokens = static_cast<int32_t>(prompt->ids.size());
    const auto begin = static_cast<uint32_t>(trace.pool.size());
    trace.pool.insert(trace.pool.end(), prompt->ids.begin(), prompt->ids.end());
    request.prompt.push_back({begin, static_cast<uint32_t>(trace.pool.size())});
    options.cache.context_tokens =
        std::max(options.cache.context_tokens, request.prompt_tokens + 1);
    trace.requests.push_back(std::move(request));
  }
  REPRISE_ASSIGN(const SimulationResult result, SimulateTrace(trace, options));
  return static_cast<size_t>(result.reused_tokens);
}

// What decides about a prompt, in the order in which most templates write it.
constexpr const char* kMembers[] = {"tools",        "functions",       "system",
                                    "instructions", "messages",        "input",
                                    "prompt",       "suffix",          "chat_template_kwargs",
                                    "tool_choice",  "response_format", "reasoning_effort",
                                    "reasoning",    "thinking"};

class PathFinder {
 public:
  PathFinder(size_t count_max, std::vector<std::string>* found)
      : count_max_(count_max), found_(*found) {}

  void Walk(const JsonValue& a, const JsonValue& b, const std::string& path) {
    if (found_.size() == count_max_) return;
    if (a.is_object() && b.is_object()) return WalkMembers(a, b, path);
    if (a.is_array() && b.is_array()) return WalkItems(a, b, path);
    if (Text(a) != Text(b)) found_.push_back(path);
  }

 private:
  void WalkMembers(const JsonValue& a, const JsonValue& b, const std::string& path) {
    const auto members_a = a.members(), members_b = b.members();
    const size_t count = std::max(members_a.size(), members_b.size());
    for (size_t i = 0; i < count && found_.size() < count_max_; ++i) {
      if (i >= members_a.size() || i >= members_b.size()) {
        const auto& member = i < members_a.size() ? members_a[i] : members_b[i];
        found_.push_back(Member(path, member.key));
      } else if (members_a[i].key != members_b[i].key) {
        found_.push_back(Member(path, members_b[i].key));  // absent in one, or in another order
        return;
      } else {
        Walk(members_a[i].value, members_b[i].value, Member(path, members_a[i].key));
      }
    }
  }

  void WalkItems(const JsonValue& a, const JsonValue& b, const std::string& path) {
    const size_t count = std::max(a.items().size(), b.items().size());
    for (size_t i = 0; i < count && found_.size() < count_max_; ++i) {
      const std::string at = path + "[" + std::to_string(i) + "]";
      if (i >= a.items().size() || i >= b.items().size()) {
        found_.push_back(at);
        return;
      }
      Walk(a.items()[i], b.items()[i], at);
    }
  }

  static std::string Member(const std::string& path, std::string_view key) {
    return path + (path.empty() ? "" : ".") + std::string(key);
  }

  static std::string Text(const JsonValue& value) {
    std::string text;
    JsonWriter(&text).Value(value);
    return text;
  }

  const size_t count_max_;
  std::vector<std::string>& found_;
};

}  // namespace

Result<Difference> Compare(const api::Prompt& a, const api::Prompt& b, const StateSpec& spec,
                           int32_t snapshot_gap) {
  Difference found;
  found.tokens_a = a.ids.size();
  found.tokens_b = b.ids.size();
  found.same_tokens = CommonPrefix(a.ids, b.ids);
  found.same_bytes = CharacterStart(a.text, CommonPrefix(a.text, b.text));
  const size_t least = std::min(found.tokens_a, found.tokens_b) - found.same_tokens;
  while (found.same_again < least && a.ids[found.tokens_a - 1 - found.same_again] ==
                                         b.ids[found.tokens_b - 1 - found.same_again]) {
    ++found.same_again;
  }
  if (a.ids.empty() || b.ids.empty()) return InvalidArgument("one of the prompts is empty");
  REPRISE_ASSIGN(found.reused, ReusedTokens({&a, &b}, spec, snapshot_gap));
  // A third request that shares with B what B shares with A, and one token that neither has.
  api::Prompt third = b;
  third.ids.resize(found.same_tokens);
  third.ids.push_back(-1);
  std::erase_if(third.boundaries, [&](const Boundary& boundary) {
    return static_cast<size_t>(boundary.position) > found.same_tokens;
  });
  REPRISE_ASSIGN(const size_t with_third, ReusedTokens({&a, &b, &third}, spec, snapshot_gap));
  found.reused_later = with_third - found.reused;
  return found;
}

std::vector<std::string> DifferingPaths(const JsonValue& a, const JsonValue& b, size_t count_max) {
  static const JsonValue kNothing;
  std::vector<std::string> found;
  PathFinder finder(count_max, &found);
  for (const char* name : kMembers) {
    const JsonValue *of_a = a.Find(name), *of_b = b.Find(name);
    finder.Walk(of_a == nullptr ? kNothing : *of_a, of_b == nullptr ? kNothing : *of_b, name);
  }
  return found;
}

std::string TextBefore(std::string_view text, size_t at) {
  const size_t from = CharacterStart(text, at - std::min(at, kShownBytes));
  std::string shown = from > 0 ? "..." : "";
  AppendJsonString(text.substr(from, at - from), &shown);
  return shown;
}

std::string TextBehind(std::string_view text, size_t at) {
  const size_t upto = CharacterStart(text, std::min(text.size(), at + kShownBytes));
  std::string shown;
  AppendJsonString(text.substr(at, upto - at), &shown);
  return shown + (upto < text.size() ? "..." : "");
}

}  // namespace reprise::cli
