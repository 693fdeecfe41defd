// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/output/formats.h"
#include "text/tokenizer.h"

namespace reprise {

// Stands before the text of a token of OutputFormat::call_tokens, so that the parser can tell it
// from its letters. UTF-8 never has this byte.
inline constexpr char kTokenByte = '\xFF';

// How a model writes its replies.
struct OutputFormat {
  std::vector<const CallFormat*> calls;        // those to look for; none: everything is text
  const ReasoningFormat* reasoning = nullptr;  // null: nothing is taken for reasoning
  bool thinking_begun = false;                 // the prompt ended with reasoning->begin
  bool thinking_over = false;  // the prompt or the request leaves no reasoning to the reply
  // Control tokens that must reach the parser as text: those that are part of a marker. null: none.
  std::shared_ptr<const std::unordered_set<int32_t>> shown;
  // Tokens with which calls begin. A marker that begins with one of them is that token; the same
  // letters, quoted from somewhere, are text. null: letters begin calls.
  std::shared_ptr<const std::unordered_set<int32_t>> call_tokens;

  // From a model's chat template, which shows the model its own format, and, where the template
  // shows none, from its vocabulary. Costs some hundred searches of the template: once a model.
  static OutputFormat Detect(std::string_view chat_template, const Tokenizer* tokenizer);
  static OutputFormat Detect(std::string_view chat_template,
                             const std::function<bool(std::string_view)>& has_token = {});

  // For a model whose template shows no tools: Hermes' format, if it has none. Such a model is told
  // of calls in plain text, so that letters begin them.
  void AddGenericCalls(const Tokenizer& tokenizer);

  // The same for a reply to this prompt. Without tools in the request nothing is taken for a call.
  OutputFormat ForPrompt(std::string_view prompt, bool with_tools) const;

  std::vector<std::string_view> Markers() const;  // all that the format has
  // What begins a call, without white space; REQUIRES: a format of `calls`.
  static std::vector<std::string_view> CallTriggers(const CallFormat& call);
  // Whether that trigger counts only if its first token is one of call_tokens.
  bool IsTokenTrigger(std::string_view trigger) const;

 private:
  void FindTokens(const Tokenizer& tokenizer);

  std::shared_ptr<const std::unordered_set<int32_t>> shown_without_calls_;
  std::vector<std::string> call_token_texts_;
};

}  // namespace reprise
