// SPDX-License-Identifier: Apache-2.0
#include "text/output/thinking.h"

#include <algorithm>

#include "base/json.h"
#include "base/json_writer.h"
#include "text/output/tag_search.h"

namespace reprise {
namespace {

constexpr ThinkingSwitch kSwitches[] = {
    // Most families.
    {.variable = "enable_thinking", .sign = "enable_thinking", .on = "true", .off = "false"},
    // Kimi K3; Granite 3.3.
    {.variable = "thinking", .sign = "thinking is undefined", .on = "true", .off = "false"},
    {.variable = "thinking", .sign = "elif thinking %}", .on = "true", .off = "false"},
    // MiniMax-M3.
    {.variable = "thinking_mode",
     .sign = "thinking_mode is defined",
     .on = "\"enabled\"",
     .off = "\"disabled\""},
    // gpt-oss.
    {.variable = "reasoning_effort",
     .sign = "\"Reasoning: \" + reasoning_effort",
     .efforts = {"\"low\"", "\"low\"", "\"medium\"", "\"high\"", "\"high\""}},
    // Hy3.
    {.variable = "reasoning_effort",
     .sign = "should be no_think/low/high",
     .on = "\"high\"",
     .off = "\"no_think\"",
     .efforts = {"\"low\"", "\"low\"", "\"high\"", "\"high\"", "\"high\""}},
    // Solar Open: less than medium is not to think at all.
    {.variable = "reasoning_effort",
     .sign = "reasoning_effort in [\"low\", \"minimal\"]",
     .on = "\"high\"",
     .off = "\"minimal\"",
     .efforts = {"\"minimal\"", "\"low\"", "\"medium\"", "\"high\"", "\"high\""}},
    // DeepSeek-V4.
    {.variable = "reasoning_effort",
     .sign = "reasoning_effort == 'max'",
     .efforts = {"\"low\"", "\"low\"", "\"medium\"", "\"high\"", "\"max\""}},
    // Cohere.
    {.variable = "reasoning_effort",
     .sign = "reasoning_effort | lower == \"none\"",
     .on = "\"high\"",
     .off = "\"none\""},
    // Kimi K3.
    {.variable = "thinking_effort",
     .sign = "thinking_effort not in ['low', 'high', 'max']",
     .efforts = {"\"low\"", "\"low\"", "\"high\"", "\"high\"", "\"max\""}},
    // Muse Glimmer.
    {.variable = "reasoning_strength",
     .sign = "reasoning_strength is defined",
     .efforts = {"\"low\"", "\"low\"", "\"medium\"", "\"high\"", "\"high\""}},
    // Seed-OSS counts the tokens itself.
    {.variable = "thinking_budget",
     .sign = "thinking_budget is defined",
     .off = "0",
     .budget = true},
};

constexpr std::string_view kEfforts[] = {"minimal", "low", "medium", "high", "max"};
// For templates without a switch for it. 0: no limit.
constexpr int32_t kBudgets[] = {512, 1024, 4096, 0, 0};

// -1: no effort of this name.
int IndexOf(std::string_view effort) {
  if (effort == "xhigh") return 4;
  const auto* found = std::find(std::begin(kEfforts), std::end(kEfforts), effort);
  return found == std::end(kEfforts) ? -1 : static_cast<int>(found - kEfforts);
}

// Whether the template reads this variable: not a member of that name, and not only to set it.
bool Reads(std::string_view chat_template, std::string_view name) {
  for (size_t at = chat_template.find(name); at != std::string_view::npos;
       at = chat_template.find(name, at + 1)) {
    const char before = at == 0 ? ' ' : chat_template[at - 1];
    std::string_view after = chat_template.substr(at + name.size());
    after.remove_prefix(BlanksAtStart(after));
    const bool set = after.starts_with('=') && !after.starts_with("==");
    if (before != '.' && before != '_' && !set && !after.starts_with('_')) return true;
  }
  return false;
}

}  // namespace

ThinkingSwitches ThinkingSwitches::Detect(std::string_view chat_template) {
  ThinkingSwitches found;
  for (const ThinkingSwitch& one : kSwitches) {
    const bool has = one.sign == one.variable
                         ? Reads(chat_template, one.variable)
                         : chat_template.find(one.sign) != std::string_view::npos;
    if (has) found.switches_.push_back(&one);
  }
  return found;
}

bool ThinkingSwitches::can_toggle() const {
  return std::any_of(switches_.begin(), switches_.end(),
                     [](const ThinkingSwitch* one) { return !one->off.empty(); });
}

Result<ThinkingPlan> ThinkingSwitches::Plan(const ThinkingRequest& request,
                                            const OutputFormat& format) const {
  ThinkingPlan plan;
  const int effort = IndexOf(request.effort);
  if (!request.effort.empty() && request.effort != "none" && effort < 0) {
    return InvalidArgument("must be none, minimal, low, medium, high or xhigh");
  }
  const bool off = request.off();
  const bool on = !off && !request.empty();
  bool done = false;
  for (const ThinkingSwitch* one : switches_) {
    std::string_view value = off ? one->off : on ? one->on : std::string_view();
    if (!off && effort >= 0 && !one->efforts[effort].empty()) {
      value = one->efforts[effort];
      done = true;
    }
    if (off && !value.empty()) done = true;
    if (one->budget && on && request.budget) {
      plan.variables.emplace_back(one->variable, std::to_string(*request.budget));
    } else if (!value.empty()) {
      plan.variables.emplace_back(one->variable, value);
    }
  }
  if (format.reasoning == nullptr || format.reasoning->end.empty()) return plan;
  if (request.budget) plan.budget = request.budget;
  if (off && !done) plan.budget = 0;
  if (!off && !plan.budget && effort >= 0 && !done && kBudgets[effort] > 0) {
    plan.budget = kBudgets[effort];
  }
  return plan;
}

std::string EndOfThinking(const ReasoningFormat& format) {
  if (!format.answer.empty()) return std::string(format.end) + std::string(format.answer);
  return "\n" + std::string(format.end) + "\n\n";
}

std::string MergeVariables(const std::string& variables, const ThinkingPlan& plan) {
  if (plan.variables.empty()) return variables;
  const auto given = JsonDocument::Parse(variables.empty() ? "{}" : variables);
  if (!given.ok() || !given->root().is_object()) return variables;
  std::string merged;
  JsonWriter json(&merged);
  json.BeginObject();
  for (const JsonValue::Member& member : given->root().members()) {
    json.Key(member.key).Value(member.value);
  }
  for (size_t i = 0; i < plan.variables.size(); ++i) {
    const auto& [name, value] = plan.variables[i];
    const bool again = std::any_of(plan.variables.begin(), plan.variables.begin() + ptrdiff_t(i),
                                   [&](const auto& other) { return other.first == name; });
    if (!again && given->root().Find(name) == nullptr) json.Key(name).Raw(value);
  }
  json.EndObject();
  return merged;
}

}  // namespace reprise
