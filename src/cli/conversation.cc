// SPDX-License-Identifier: Apache-2.0
#include "cli/conversation.h"

#include <string_view>
#include <utility>

#include "text/chat_prompt.h"

namespace reprise::cli {

std::vector<std::pair<std::string, std::string>> SpecialTokens(const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto add = [&](const char* name, int32_t id) {
    if (id >= 0) tokens.emplace_back(name, std::string(tokenizer.TokenBytes(id)));
  };
  add("bos_token", tokenizer.bos_id());
  add("pad_token", tokenizer.pad_id());
  if (!tokenizer.eos_ids().empty()) add("eos_token", tokenizer.eos_ids().front());
  return tokens;
}

Result<Conversation> Conversation::Create(const ModelText* text, std::string system, bool plain) {
  Conversation conversation(text, std::move(system));
  if (!plain && !text->chat_templates.empty()) {
    auto parsed = ChatTemplate::Parse(text->chat_templates.front().source);
    if (!parsed.ok()) {
      return parsed.status().Annotate(
          "the model's chat template cannot be used (--plain goes on "
          "without it)");
    }
    conversation.template_.emplace(std::move(*parsed));
  }
  conversation.Clear();
  return conversation;
}

void Conversation::Clear() {
  messages_.clear();
  plain_ = is_chat() ? "" : system_;
  if (is_chat() && !system_.empty()) messages_.push_back({"system", system_});
}

Result<GenerateRequest> Conversation::Ask(const std::string& message) {
  if (is_chat()) {
    messages_.push_back({"user", message});
    auto request = RenderChat();
    if (!request.ok()) messages_.pop_back();
    return request;
  }
  plain_ += message;
  GenerateRequest request;
  REPRISE_TRY(text_->tokenizer->Encode(plain_, {true, false}, &request.prompt));
  return request;
}

Result<GenerateRequest> Conversation::RenderChat() const {
  const JsonDocument messages = MakeMessages(messages_);
  ChatInput input;
  input.messages = &messages.root();
  input.special_tokens = SpecialTokens(*text_->tokenizer);
  REPRISE_ASSIGN(const RenderedChat chat, template_->Render(input));
  std::vector<std::string_view> contents;
  for (const ChatMessage& message : messages_) contents.push_back(message.content);
  REPRISE_ASSIGN(ChatPrompt prompt, EncodeChat(*text_->tokenizer, chat, contents));
  GenerateRequest request;
  request.prompt = std::move(prompt.ids);
  for (const ChatPrompt::Boundary& boundary : prompt.boundaries) {
    const bool system = boundary.message_count == (system_.empty() ? 0 : 1);
    request.boundaries.push_back(
        {boundary.position, system ? BoundaryKind::kSystem : BoundaryKind::kMessage});
  }
  return request;
}

void Conversation::Reply(const std::string& text) {
  if (is_chat()) {
    messages_.push_back({"assistant", text});
  } else {
    plain_ += text;
  }
}

}  // namespace reprise::cli
