// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/conversation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "api/pictures/picture_url.h"
#include "base/coding/base64.h"
#include "engine/sight/placed_pictures.h"

namespace reprise::cli {
namespace {

// What Transformers' processors put around a picture's tokens in the place that a template leaves
// for it: the template writes it here, so that it becomes tokens together with the text beside it.
struct PicturePlace {
  std::string_view written;  // by the template, as a literal
  std::string_view whole;
  std::string_view own;  // a token of it; templates that write it themselves are left alone
};
constexpr PicturePlace kPicturePlaces[] = {
    {"'<start_of_image>'", R"('\n\n<start_of_image><image_soft_token><end_of_image>\n\n')",
     "<image_soft_token>"},
    {"'<|image|>'", "'<|image><|image|><image|>'", "<image|>"}};

}  // namespace

std::string WithPicturePlaces(std::string source, const Tokenizer& tokenizer) {
  for (const PicturePlace& place : kPicturePlaces) {
    if (tokenizer.FindToken(place.own) < 0 || source.find(place.own) != source.npos) continue;
    for (size_t at = 0; (at = source.find(place.written, at)) != source.npos;) {
      source.replace(at, place.written.size(), place.whole);
      at += place.whole.size();
    }
  }
  return source;
}

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

Result<Conversation> Conversation::Create(const ModelText* text, std::string system, bool plain,
                                          Eyes eyes) {
  Conversation conversation(text, std::move(system), std::move(eyes));
  if (!plain && !text->chat_templates.empty()) {
    auto parsed = ChatTemplate::Parse(
        WithPicturePlaces(text->chat_templates.front().source, *text->tokenizer));
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

Result<ShownPicture> Conversation::See(std::string file) const {
  if (eyes_.token < 0) return InvalidArgument("this model sees no pictures");
  if (!is_chat()) return InvalidArgument("pictures are for chats, and this is plain text");
  ShownPicture picture{std::move(file), nullptr};
  REPRISE_ASSIGN(picture.seen, eyes_.see(picture.file));
  return picture;
}

std::optional<Question> Conversation::Unask() {
  if (!is_chat()) {
    if (asked_.empty()) return std::nullopt;
    plain_.resize(asked_at_);
    return Question{std::exchange(asked_, {}), {}};
  }
  while (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
  if (messages_.empty() || messages_.back().role != "user") return std::nullopt;
  Question question{std::move(messages_.back().content), std::move(messages_.back().pictures)};
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

// Pictures as templates are shown them, or with their files as a request has them.
void Conversation::WriteMessages(const std::vector<Message>& messages, bool with_files,
                                 JsonWriter* json) {
  json->BeginArray();
  for (const Message& message : messages) {
    json->BeginObject().Member("role", message.role).Key("content");
    if (message.pictures.empty()) {
      json->String(message.content);
    } else {
      json->BeginArray();
      for (const ShownPicture& picture : message.pictures) {
        json->BeginObject().Member("type", with_files ? "image_url" : "image");
        if (with_files) {
          json->Key("image_url").BeginObject();
          json->Member("url", api::MakePictureUrl(picture.file)).EndObject();
        }
        json->EndObject();
      }
      json->BeginObject().Member("type", "text").Member("text", message.content).EndObject();
      json->EndArray();
    }
    json->EndObject();
  }
  json->EndArray();
}

std::string Conversation::ToJson() const {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("messages");
  WriteMessages(messages_, true, &json);
  json.EndObject();
  return text + "\n";
}

// As ToJson writes them: a text, or pictures and then a text.
Result<Conversation::Message> Conversation::ReadMessage(const JsonValue& item) const {
  constexpr std::string_view kBase64 = ";base64,";
  const auto wrong = [] { return InvalidArgument("has a message that is no text with pictures"); };
  const JsonValue *role = item.Find("role"), *content = item.Find("content");
  if (role == nullptr || !role->is_string() || content == nullptr) return wrong();
  Message message{std::string(role->as_string()), "", {}};
  if (content->is_string()) {
    message.content = content->as_string();
    return message;
  }
  if (!content->is_array() || content->items().empty() || message.role != "user") return wrong();
  for (const JsonValue& part : content->items()) {
    const JsonValue *type = part.Find("type"), *text = part.Find("text");
    const JsonValue* image = part.Find("image_url");
    if (type == nullptr || !type->is_string()) return wrong();
    if (&part == &content->items().back()) {
      if (type->as_string() != "text" || text == nullptr || !text->is_string()) return wrong();
      message.content = text->as_string();
      break;
    }
    const JsonValue* url = image != nullptr ? image->Find("url") : nullptr;
    if (type->as_string() != "image_url" || url == nullptr || !url->is_string()) return wrong();
    const size_t begin = url->as_string().find(kBase64);
    if (begin == std::string_view::npos) return wrong();
    auto file = FromBase64(url->as_string().substr(begin + kBase64.size()));
    if (!file) return wrong();
    REPRISE_ASSIGN(ShownPicture picture, See(std::move(*file)));
    message.pictures.push_back(std::move(picture));
  }
  return message;
}

Status Conversation::FromJson(std::string_view text) {
  constexpr size_t kMessagesMax = 4096;
  REPRISE_ASSIGN(const JsonDocument document,
                 JsonDocument::Parse(text, {.value_count_max = 1 << 16}));
  const JsonValue* list = document.root().Find("messages");
  if (list == nullptr || !list->is_array() || list->items().size() > kMessagesMax) {
    return InvalidArgument("has no \"messages\", or more than 4096: it is not a saved chat");
  }
  std::vector<Message> messages;
  for (const JsonValue& item : list->items()) {
    REPRISE_ASSIGN(messages.emplace_back(), ReadMessage(item));
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

Result<GenerateRequest> Conversation::Ask(Question question) {
  if (is_chat()) {
    messages_.push_back({"user", std::move(question.text), std::move(question.pictures)});
    auto chat = Render(messages_, true);
    auto request = chat.ok() ? Encode(*chat, messages_) : chat.status();
    if (!request.ok()) messages_.pop_back();
    return request;
  }
  asked_at_ = plain_.size();
  asked_ = std::move(question.text);
  plain_ += asked_;
  GenerateRequest request;
  REPRISE_TRY(text_->tokenizer->Encode(plain_, {true, false}, &request.prompt));
  return request;
}

Result<RenderedChat> Conversation::Render(const std::vector<Message>& messages,
                                          bool opens_reply) const {
  std::string text;
  JsonWriter json(&text);
  WriteMessages(messages, false, &json);
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(text));
  ChatInput input;
  input.messages = &document.root();
  input.special_tokens = SpecialTokens(*text_->tokenizer);
  input.add_generation_prompt = opens_reply;
  return template_->Render(input);
}

Result<GenerateRequest> Conversation::Encode(const RenderedChat& chat,
                                             const std::vector<Message>& messages) const {
  REPRISE_ASSIGN(ChatPrompt prompt, encoder_->Encode(chat));
  GenerateRequest request;
  request.prompt = std::move(prompt.ids);
  for (const ChatPrompt::Boundary& boundary : prompt.boundaries) {
    const bool system = boundary.message_count == (system_.empty() ? 0 : 1);
    request.boundaries.push_back(
        {boundary.position, system ? BoundaryKind::kSystem : BoundaryKind::kMessage});
  }
  std::vector<std::shared_ptr<const SeenPicture>> pictures;
  for (const Message& message : messages) {
    for (const ShownPicture& picture : message.pictures) pictures.push_back(picture.seen);
  }
  if (!pictures.empty()) {
    REPRISE_TRY(PlacePictures(pictures, eyes_.token, &request.prompt, &request.boundaries,
                              &request.pictures));
  }
  return request;
}

Result<GenerateRequest> Conversation::NextTurn() const {
  GenerateRequest known;
  if (!is_chat() || messages_.empty() || messages_.back().role != "assistant") return known;
  // Where two next messages make a difference, the known part ends.
  std::vector<Message> messages = messages_;
  messages.push_back({"user", "?"});
  REPRISE_ASSIGN(const RenderedChat other, Render(messages, false));
  messages.back().content = "a";
  REPRISE_ASSIGN(RenderedChat chat, Render(messages, false));
  const size_t bytes = static_cast<size_t>(
      std::mismatch(chat.text.begin(), chat.text.end(), other.text.begin(), other.text.end())
          .first -
      chat.text.begin());
  if (bytes == 0) return known;
  chat.boundaries = {{messages_.size(), bytes}};
  REPRISE_ASSIGN(GenerateRequest request, Encode(chat, messages));
  if (request.boundaries.empty()) return known;
  known.prompt = std::move(request.prompt);
  known.prompt.resize(static_cast<size_t>(request.boundaries.front().position));
  known.pictures = std::move(request.pictures);
  return known;
}

void Conversation::Reply(const std::string& text) {
  if (is_chat()) {
    messages_.push_back({"assistant", text});
  } else {
    plain_ += text;
  }
}

}  // namespace reprise::cli
