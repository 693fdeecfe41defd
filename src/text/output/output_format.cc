// SPDX-License-Identifier: Apache-2.0
#include "text/output/output_format.h"

#include <algorithm>

#include "text/output/markers.h"

namespace reprise {
namespace {

template <typename Format>
bool ShowsIn(const Format& format, std::string_view chat_template) {
  return std::all_of(format.signs.begin(), format.signs.end(), [&](std::string_view sign) {
    return sign.empty() || chat_template.find(sign) != std::string_view::npos;
  });
}

std::shared_ptr<const std::unordered_set<int32_t>> MarkerTokens(const Tokenizer& tokenizer,
                                                                const OutputFormat& format) {
  const std::vector<std::string_view> markers = format.Markers();
  auto tokens = std::make_shared<std::unordered_set<int32_t>>();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id)) continue;
    const std::string_view text = tokenizer.TokenBytes(id);
    if (text.empty()) continue;
    for (const std::string_view marker : markers) {
      if (marker.find(text) != std::string_view::npos) tokens->insert(id);
    }
  }
  return tokens;
}

// The control tokens that the triggers of calls begin with: of each the longest.
std::shared_ptr<const std::unordered_set<int32_t>> CallTokens(const Tokenizer& tokenizer,
                                                              const OutputFormat& format) {
  auto tokens = std::make_shared<std::unordered_set<int32_t>>();
  for (const CallFormat* call : format.calls) {
    for (const std::string_view trigger : OutputFormat::CallTriggers(*call)) {
      for (size_t size = trigger.size(); size > 0; --size) {
        const int32_t id = tokenizer.FindToken(trigger.substr(0, size));
        if (!tokenizer.IsControl(id)) continue;
        tokens->insert(id);
        break;
      }
    }
  }
  return tokens;
}

}  // namespace

OutputFormat OutputFormat::Detect(std::string_view chat_template,
                                  const std::function<bool(std::string_view)>& has_token) {
  OutputFormat found;
  const auto in_vocabulary = [&](std::string_view token) {
    return has_token != nullptr && !token.empty() && has_token(token);
  };
  for (const bool by_token : {false, true}) {
    for (const CallFormat& format : CallFormats()) {
      if (format.bare && !found.calls.empty() && !found.calls.front()->bare) continue;
      const bool fits = by_token ? in_vocabulary(format.token) : ShowsIn(format, chat_template);
      if (fits) found.calls.push_back(&format);
    }
    if (!found.calls.empty()) break;
  }
  for (const bool by_token : {false, true}) {
    for (const ReasoningFormat& format : ReasoningFormats()) {
      if (found.reasoning != nullptr) break;
      const bool fits = by_token ? in_vocabulary(format.token) : ShowsIn(format, chat_template);
      if (fits) found.reasoning = &format;
    }
  }
  return found;
}

OutputFormat OutputFormat::Detect(std::string_view chat_template, const Tokenizer* tokenizer) {
  OutputFormat format = Detect(chat_template, [tokenizer](std::string_view token) {
    return tokenizer->FindToken(token) >= 0;
  });
  OutputFormat without_calls = format;
  without_calls.calls.clear();
  format.FindTokens(*tokenizer);
  format.shown_without_calls_ = MarkerTokens(*tokenizer, without_calls);
  return format;
}

void OutputFormat::FindTokens(const Tokenizer& tokenizer) {
  shown = MarkerTokens(tokenizer, *this);
  call_tokens = CallTokens(tokenizer, *this);
  call_token_texts_.clear();
  for (const int32_t id : *call_tokens) call_token_texts_.emplace_back(tokenizer.TokenBytes(id));
}

void OutputFormat::AddGenericCalls(const Tokenizer& tokenizer) {
  if (calls.empty()) {
    const auto formats = CallFormats();
    calls.push_back(&*std::find_if(formats.begin(), formats.end(), [](const CallFormat& format) {
      return format.name == "hermes";
    }));
    FindTokens(tokenizer);
  }
  call_tokens = nullptr;
  call_token_texts_.clear();
}

OutputFormat OutputFormat::ForPrompt(std::string_view prompt, bool with_tools) const {
  OutputFormat format = *this;
  if (!with_tools) {
    format.calls.clear();
    format.shown = shown_without_calls_;
    format.call_tokens = nullptr;
    format.call_token_texts_.clear();
  }
  prompt.remove_suffix(BlanksAtEnd(prompt));
  format.thinking_begun =
      reasoning != nullptr && !reasoning->begin.empty() && prompt.ends_with(reasoning->begin);
  format.thinking_over =
      reasoning != nullptr && !reasoning->end.empty() && prompt.ends_with(reasoning->end);
  return format;
}

bool OutputFormat::IsTokenTrigger(std::string_view trigger) const {
  return std::any_of(call_token_texts_.begin(), call_token_texts_.end(),
                     [&](const std::string& text) { return trigger.starts_with(text); });
}

std::vector<std::string_view> OutputFormat::CallTriggers(const CallFormat& call) {
  std::vector<std::string_view> triggers;
  const auto add = [&](std::string_view marker) {
    if (!TriggerOf(marker).empty()) triggers.push_back(TriggerOf(marker));
  };
  add(call.section_begin);
  if (call.section_begin.empty() || call.section_optional) add(call.call_begin);
  return triggers;
}

std::vector<std::string_view> OutputFormat::Markers() const {
  std::vector<std::string_view> markers;
  const auto add = [&](std::string_view marker) {
    if (!marker.empty()) markers.push_back(marker);
  };
  for (const CallFormat* call : calls) {
    for (const std::string_view marker :
         {call->section_begin, call->section_end, call->call_begin, call->id_begin, call->id_end,
          call->arguments_begin, call->call_end, call->quote, call->parameter.begin,
          call->parameter.value_begin, call->parameter.value_end, call->parameter.type_begin}) {
      add(marker);
    }
  }
  if (reasoning != nullptr) {
    add(reasoning->begin);
    add(reasoning->end);
    for (const std::string_view marker : reasoning->hidden) add(marker);
  }
  return markers;
}

}  // namespace reprise
