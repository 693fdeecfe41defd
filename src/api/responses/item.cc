// SPDX-License-Identifier: Apache-2.0
#include "api/responses/item.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "api/chat/blocks.h"

namespace reprise::api::responses {
namespace {

constexpr size_t kItemsMax = 16384;
constexpr size_t kPartsMax = 4096;
constexpr size_t kIdBytesMax = 256;
constexpr std::string_view kSeal = "reprise:";

std::string_view TextOf(const JsonValue* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string_view();
}

std::string_view TypeOf(const JsonValue& object) { return TextOf(object.Find("type")); }

void AppendLine(std::string_view text, std::string* to) {
  if (!to->empty()) *to += '\n';
  *to += text;
}

// Reads the items of one input.
class InputReader {
 public:
  InputReader(const ServiceOptions& options, const FindItem& find, Fields* fields, Items* items)
      : options_(options), find_(find), fields_(*fields), items_(*items) {}

  void Read(const JsonValue& item, const std::string& place);

 private:
  void ReadMessage(const JsonValue& item, const std::string& place);
  void ReadReasoning(const JsonValue& item, const std::string& place);
  void ReadCall(const JsonValue& item, const std::string& place);
  void ReadCallOutput(const JsonValue& item, const std::string& place);
  void ReadReference(const JsonValue& item, const std::string& place);
  // A string, or parts of text that are joined with newlines.
  std::string ReadText(const JsonValue* content, const std::string& place);
  std::string ReadName(const JsonValue& item, const char* name, const std::string& place);

  const ServiceOptions& options_;
  const FindItem& find_;
  Fields& fields_;
  Items& items_;
};

void InputReader::Read(const JsonValue& item, const std::string& place) {
  if (!item.is_object()) return fields_.Fail(place, "must be an object");
  const std::string_view type = TypeOf(item);
  if (type == "message" || (type.empty() && item.Find("role") != nullptr)) {
    return ReadMessage(item, place);
  }
  if (type == "reasoning") return ReadReasoning(item, place);
  if (type == "function_call") return ReadCall(item, place);
  if (type == "function_call_output") return ReadCallOutput(item, place);
  if (type == "item_reference") return ReadReference(item, place);
  fields_.Fail(place + ".type", fmt::format("'{}' is not supported: this server understands "
                                            "messages, reasoning, function calls and their outputs",
                                            type));
}

std::string InputReader::ReadText(const JsonValue* content, const std::string& place) {
  if (content != nullptr && content->is_string()) return std::string(content->as_string());
  std::string text;
  if (content == nullptr || !content->is_array() || content->items().size() > kPartsMax) {
    fields_.Fail(place, fmt::format("must be a string or an array of at most {} parts", kPartsMax));
    return text;
  }
  for (size_t i = 0; i < content->items().size(); ++i) {
    const JsonValue& part = content->items()[i];
    const std::string_view type = TypeOf(part);
    const std::string here = fmt::format("{}[{}]", place, i);
    if (type == "input_image" && options_.ignore_images) {
      AppendLine(kImageText, &text);
      continue;
    }
    if (type == "input_image" && options_.sees) {
      fields_.Fail(here + ".type",
                   "'input_image' is not supported here; send pictures to /v1/chat/completions");
      return text;
    }
    const bool known = type == "input_text" || type == "output_text" || type == "text" ||
                       type == "refusal" || type == "reasoning_text" || type == "summary_text";
    if (!known) {
      fields_.Fail(here + ".type",
                   fmt::format("'{}' is not supported: this server understands text only", type));
      return text;
    }
    const JsonValue* value = part.Find(type == "refusal" ? "refusal" : "text");
    if (value == nullptr || !value->is_string()) {
      fields_.Fail(here + ".text", "must be a string");
      return text;
    }
    if (i > 0) text += '\n';
    text += value->as_string();
  }
  return text;
}

std::string InputReader::ReadName(const JsonValue& item, const char* name,
                                  const std::string& place) {
  const std::string_view text = TextOf(item.Find(name));
  if (text.empty() || text.size() > kIdBytesMax) {
    fields_.Fail(place + "." + name, fmt::format("must be a string of 1 to {} bytes", kIdBytesMax));
    return "";
  }
  return std::string(text);
}

void InputReader::ReadMessage(const JsonValue& item, const std::string& place) {
  Item read;
  read.role = std::string(TextOf(item.Find("role")).substr(0, kIdBytesMax));
  if (read.role == "developer") read.role = "system";
  if (read.role != "system" && read.role != "user" && read.role != "assistant") {
    return fields_.Fail(place + ".role", "must be one of system, developer, user, assistant");
  }
  read.text = ReadText(item.Find("content"), place + ".content");
  items_.push_back(std::move(read));
}

// The text itself, or what SealReasoning made of it; of others' seals nothing can be read.
void InputReader::ReadReasoning(const JsonValue& item, const std::string& place) {
  Item read;
  read.kind = Item::Kind::kReasoning;
  const JsonValue* content = item.Find("content");
  const std::string_view sealed = TextOf(item.Find("encrypted_content"));
  if (content != nullptr && content->is_array() && !content->items().empty()) {
    read.text = ReadText(content, place + ".content");
  } else if (sealed.starts_with(kSeal)) {
    read.text = std::string(sealed.substr(kSeal.size()));
  }
  if (!read.text.empty()) items_.push_back(std::move(read));
}

void InputReader::ReadCall(const JsonValue& item, const std::string& place) {
  Item read;
  read.kind = Item::Kind::kCall;
  read.call_id = ReadName(item, "call_id", place);
  read.name = ReadName(item, "name", place);
  const JsonValue* arguments = item.Find("arguments");
  if (arguments == nullptr || !arguments->is_string()) {
    return fields_.Fail(place + ".arguments", "must be a string");
  }
  read.text = arguments->as_string().empty() ? "{}" : std::string(arguments->as_string());
  items_.push_back(std::move(read));
}

void InputReader::ReadCallOutput(const JsonValue& item, const std::string& place) {
  Item read;
  read.kind = Item::Kind::kCallOutput;
  read.call_id = ReadName(item, "call_id", place);
  read.text = ReadText(item.Find("output"), place + ".output");
  items_.push_back(std::move(read));
}

void InputReader::ReadReference(const JsonValue& item, const std::string& place) {
  const std::string_view id = TextOf(item.Find("id"));
  const Item* found = find_(id);
  if (found == nullptr) {
    return fields_.Fail(place + ".id", fmt::format("'{}' is not an item that this server remembers",
                                                   id.substr(0, kIdBytesMax)));
  }
  items_.push_back(*found);
}

// Joins items into turns.
class TurnMaker {
 public:
  explicit TurnMaker(std::string_view instructions) {
    if (instructions.empty()) return;
    Begin("system").content = std::string(instructions);
  }

  void Add(const Item& item) {
    switch (item.kind) {
      case Item::Kind::kMessage:
        return AddMessage(item);
      case Item::Kind::kReasoning:
        Assistant(!IsOpen() || !last().content.empty() || !last().calls.empty());
        return AppendLine(item.text.get(), &last().reasoning);
      case Item::Kind::kCall:
        Assistant(!IsOpen());
        names_[item.call_id] = item.name;
        last().calls.push_back({item.call_id, item.name, item.text.get()});
        return;
      case Item::Kind::kCallOutput: {
        ChatTurn& turn = Begin("tool");
        turn.content = item.text.get();
        turn.call_id = item.call_id;
        const auto name = names_.find(item.call_id);
        if (name != names_.end()) turn.name = name->second;
        return;
      }
    }
  }
  std::vector<ChatTurn> Take() { return std::move(turns_); }

 private:
  ChatTurn& last() { return turns_.back(); }
  bool IsOpen() const { return !turns_.empty() && turns_.back().role == "assistant"; }
  ChatTurn& Begin(std::string_view role) {
    turns_.emplace_back().role = std::string(role);
    return last();
  }
  void Assistant(bool begin) {
    if (begin) Begin("assistant");
  }
  void AddMessage(const Item& item) {
    if (item.role == "assistant") {
      Assistant(!IsOpen() || !last().content.empty() || !last().calls.empty());
    } else if (!(item.role == "system" && turns_.size() == 1 && last().role == "system")) {
      Begin(item.role);
    }
    AppendLine(item.text.get(), &last().content);
  }

  std::vector<ChatTurn> turns_;
  std::unordered_map<std::string, std::string> names_;  // of the functions that calls name
};

}  // namespace

void ReadInput(const ServiceOptions& options, const FindItem& find, Fields* fields, Items* items) {
  const JsonValue* input = fields->Find("input");
  if (input == nullptr) return;
  if (input->is_string()) {
    Item item;
    item.role = "user";
    item.text = std::string(input->as_string());
    items->push_back(std::move(item));
    return;
  }
  const JsonValue* list = fields->Array("input", kItemsMax);
  if (list == nullptr) return;
  InputReader reader(options, find, fields, items);
  for (size_t i = 0; i < list->items().size() && fields->ok(); ++i) {
    reader.Read(list->items()[i], fmt::format("input[{}]", i));
  }
}

std::vector<ChatTurn> MakeTurns(std::string_view instructions, std::span<const Item> items) {
  TurnMaker maker(instructions);
  for (const Item& item : items) maker.Add(item);
  return maker.Take();
}

std::string SealReasoning(std::string_view text) { return std::string(kSeal) + std::string(text); }

}  // namespace reprise::api::responses
