// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/output/formats.h"
#include "text/tokenizer.h"

namespace reprise {

// How a model writes its replies.
struct OutputFormat {
  std::vector<const CallFormat*> calls;        // those to look for; none: everything is text
  const ReasoningFormat* reasoning = nullptr;  // null: nothing is taken for reasoning
  bool thinking_begun = false;                 // the prompt ended with reasoning->begin
  // Special tokens that must reach the parser as text: those that are part of a marker. null: none.
  std::shared_ptr<const std::unordered_set<int32_t>> shown;

  // From a model's chat template, which shows the model its own format, and, where the template
  // shows none, from its vocabulary. Costs some hundred searches of the template: once a model.
  static OutputFormat Detect(std::string_view chat_template, const Tokenizer* tokenizer);
  static OutputFormat Detect(std::string_view chat_template,
                             const std::function<bool(std::string_view)>& has_token = {});

  // The same for a reply to this prompt. Without tools in the request nothing is taken for a call.
  OutputFormat ForPrompt(std::string_view prompt, bool with_tools) const;

  std::vector<std::string_view> Markers() const;  // all that the format has

 private:
  std::shared_ptr<const std::unordered_set<int32_t>> shown_without_calls_;
};

}  // namespace reprise
