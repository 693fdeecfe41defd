// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/conversation.h"

#include <algorithm>
#include <string_view>
#include <utility>

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
    conversation.encoder_.emplace(text->tokenizer.get());
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

Result<RenderedChat> Conversation::Render(const std::vector<ChatMessage>& messages,
                                          bool opens_reply) const {
  const JsonDocument document = MakeMessages(messages);
  ChatInput input;
  input.messages = &document.root();
  input.special_tokens = SpecialTokens(*text_->tokenizer);
  input.add_generation_prompt = opens_reply;
  return template_->Render(input);
}

Result<std::vector<TokenId>> Conversation::NextTurn() const {
  std::vector<TokenId> ids;
  if (!is_chat() || messages_.empty() || messages_.back().role != "assistant") return ids;
  // Where two next messages make a difference, the known part ends.
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", "?"});
  REPRISE_ASSIGN(const RenderedChat other, Render(messages, false));
  messages.back().content = "a";
  REPRISE_ASSIGN(RenderedChat chat, Render(messages, false));
  const size_t known = static_cast<size_t>(
      std::mismatch(chat.text.begin(), chat.text.end(), other.text.begin(), other.text.end())
          .first -
      chat.text.begin());
  if (known == 0) return ids;
  chat.boundaries = {{messages_.size(), known}};
  REPRISE_ASSIGN(ChatPrompt prompt, encoder_->Encode(chat));
  if (prompt.boundaries.empty()) return ids;
  ids = std::move(prompt.ids);
  ids.resize(static_cast<size_t>(prompt.boundaries.front().position));
  return ids;
}

Result<GenerateRequest> Conversation::RenderChat() const {
  REPRISE_ASSIGN(const RenderedChat chat, Render(messages_, true));
  REPRISE_ASSIGN(ChatPrompt prompt, encoder_->Encode(chat));
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
