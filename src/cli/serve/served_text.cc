// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/served_text.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "cli/chat/conversation.h"

namespace reprise::cli {

Status ServedText::Read(const Checkpoint& checkpoint, const std::string& tokenizer_path) {
  auto text = tokenizer_path.empty() ? ReadModelText(checkpoint) : ReadTextFile(tokenizer_path);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound && tokenizer_path.empty()) {
    return text.status().Annotate("give one with --tokenizer");
  }
  if (!text.ok()) return text.status();
  text_.emplace(std::move(*text));
  encoder_.emplace(text_->tokenizer.get());
  if (text_->chat_templates.empty()) return OkStatus();
  auto parsed = ChatTemplate::Parse(
      WithPicturePlaces(text_->chat_templates.front().source, *text_->tokenizer));
  if (parsed.ok()) {
    template_.emplace(std::move(*parsed));
  } else {
    Log(LogLevel::kWarning,
        "the model's chat template cannot be used, chat is off: " + parsed.status().message());
  }
  return OkStatus();
}

void ServedText::Describe(api::ServedModel* served) const {
  const Tokenizer* tokenizer = text_->tokenizer.get();
  served->tokenizer = tokenizer;
  served->special_tokens = SpecialTokens(*tokenizer);
  served->chat_template = template_ ? &*template_ : nullptr;
  if (!template_) return;
  served->template_source = text_->chat_templates.front().source;
  served->output = OutputFormat::Detect(served->template_source, tokenizer);
  served->call_shape = FindCallShape(*template_);
  if (served->call_shape.tools_as_text) served->output.AddGenericCalls(*tokenizer);
  served->system_shape = FindSystemShape(*template_);
  served->thinking = ThinkingSwitches::Detect(served->template_source);
  served->chat_encoder = &*encoder_;
}

}  // namespace reprise::cli
