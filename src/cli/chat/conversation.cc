// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/conversation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json_writer.h"

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

std::optional<std::string> Conversation::Unask() {
  if (!is_chat()) {
    if (asked_.empty()) return std::nullopt;
    plain_.resize(asked_at_);
    return std::exchange(asked_, {});
  }
  while (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
  if (messages_.empty() || messages_.back().role != "user") return std::nullopt;
  std::string question = std::move(messages_.back().content);
  messages_.pop_back();
  return question;
}

void Conversation::SetSystem(std::string system) {
  const bool had = !messages_.empty() && messages_.front().role == "system";
  if (had) messages_.erase(messages_.begin());
  system_ = std::move(system);
  if (is_chat() && !system_.empty()) messages_.insert(messages_.begin(), {"system", system_});
  if (!is_chat() && plain_.empty()) plain_ = system_;
}

std::string Conversation::ToJson() const {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("messages").BeginArray();
  for (const ChatMessage& message : messages_) {
    json.BeginObject().Member("role", message.role).Member("content", message.content).EndObject();
  }
  json.EndArray().EndObject();
  return text + "\n";
}

Status Conversation::FromJson(std::string_view text) {
  constexpr size_t kMessagesMax = 4096;
  REPRISE_ASSIGN(const JsonDocument document,
                 JsonDocument::Parse(text, {.value_count_max = 1 << 16}));
  const JsonValue* list = document.root().Find("messages");
  if (list == nullptr || !list->is_array() || list->items().size() > kMessagesMax) {
    return InvalidArgument("has no \"messages\", or more than 4096: it is not a saved chat");
  }
  std::vector<ChatMessage> messages;
  for (const JsonValue& item : list->items()) {
    const JsonValue *role = item.Find("role"), *content = item.Find("content");
    const bool texts =
        role != nullptr && role->is_string() && content != nullptr && content->is_string();
    if (!texts) return InvalidArgument("has a message that is not a text");
    messages.push_back({std::string(role->as_string()), std::string(content->as_string())});
    const std::string& who = messages.back().role;
    const bool first = messages.size() == 1;
    if (who != "user" && who != "assistant" && !(who == "system" && first)) {
      return InvalidArgument("has a message of '" + who.substr(0, 40) +
                             "': a chat has a system prompt, then user and assistant");
    }
  }
  messages_ = std::move(messages);
  const bool system = !messages_.empty() && messages_.front().role == "system";
  system_ = system ? messages_.front().content : "";
  return OkStatus();
}

void Conversation::Clear() {
  asked_.clear();
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
  asked_at_ = plain_.size();
  asked_ = message;
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
