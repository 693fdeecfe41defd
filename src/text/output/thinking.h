// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/output/output_format.h"

namespace reprise {

// How a template is told whether, and how much, its model shall think: a variable that it asks for.
// A table like those of formats.h.
struct ThinkingSwitch {
  std::string_view variable;
  std::string_view sign;  // stands in the templates that have this switch
  // The values, as JSON; empty: the switch has none for it.
  std::string_view on = {};
  std::string_view off = {};
  // By effort: minimal, low, medium, high, max.
  std::string_view efforts[5] = {};
  bool budget = false;  // the value is a number of tokens
};

// What a client asks for. Absent: nothing.
struct ThinkingRequest {
  std::optional<bool> enabled;
  std::string effort;             // none, minimal, low, medium, high, xhigh, max; or empty
  std::optional<int32_t> budget;  // tokens at most

  bool empty() const { return !enabled && effort.empty() && !budget; }
  bool off() const { return enabled == false || effort == "none" || budget == 0; }
};

// What is done for it.
struct ThinkingPlan {
  std::vector<std::pair<std::string, std::string>> variables;  // of the template: name, JSON
  // After so many tokens of reasoning it is ended, whatever the model wants. Absent: it is not.
  std::optional<int32_t> budget;
};

// The switches of one model.
class ThinkingSwitches {
 public:
  static ThinkingSwitches Detect(std::string_view chat_template);

  // Whether a request can turn thinking on and off.
  bool can_toggle() const;

  // Fails with kInvalidArgument for an effort that does not exist. A template without the switch
  // that is asked for gets a budget instead: none for high, some thousand tokens below, 0 for off.
  // A model that does not think is left alone.
  // Whether the model thinks at all, or its template has a switch for it.
  bool can_think(const OutputFormat& format) const {
    return format.reasoning != nullptr || !switches_.empty();
  }
  Result<ThinkingPlan> Plan(const ThinkingRequest& request, const OutputFormat& format) const;

 private:
  std::vector<const ThinkingSwitch*> switches_;
};

// The text that ends open reasoning, as the model itself would have written it.
std::string EndOfThinking(const ReasoningFormat& format);

// The variables, where `variables` (a JSON object, or empty) does not have them already.
std::string MergeVariables(const std::string& variables, const ThinkingPlan& plan);

}  // namespace reprise
