// SPDX-License-Identifier: Apache-2.0
#include "api/responses/item.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "api/chat/blocks.h"
#include "api/pictures/picture_url.h"
#include "base/json_writer.h"

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
  // A string, or parts: texts are joined with newlines.
  void ReadContent(const JsonValue* content, const std::string& place, Item* item);
  bool IsPicture(const JsonValue& part) const {
    return options_.sees && TypeOf(part) == "input_image";
  }
  void ReadPart(const JsonValue& part, const std::string& place, const Item& item, ChatTurn* read);
  void ReadImage(const JsonValue& part, const std::string& place, const Item& item, ChatTurn* read);
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
  if (type == "function_call" || type == "custom_tool_call") return ReadCall(item, place);
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return ReadCallOutput(item, place);
  }
  if (type == "item_reference") return ReadReference(item, place);
  fields_.Fail(place + ".type", fmt::format("'{}' is not supported: this server understands "
                                            "messages, reasoning, function calls and their outputs",
                                            type));
}

void InputReader::ReadContent(const JsonValue* content, const std::string& place, Item* item) {
  if (content != nullptr && content->is_string()) {
    item->text = std::string(content->as_string());
    return;
  }
  if (content == nullptr || !content->is_array() || content->items().size() > kPartsMax) {
    return fields_.Fail(place,
                        fmt::format("must be a string or an array of at most {} parts", kPartsMax));
  }
  ChatTurn read;
  for (size_t i = 0; i < content->items().size() && fields_.ok(); ++i) {
    const bool behind_picture =
        !read.pictures.empty() && read.pictures.back().content_bytes == read.content.size();
    if (i > 0 && !behind_picture && !IsPicture(content->items()[i])) read.content += '\n';
    ReadPart(content->items()[i], fmt::format("{}[{}]", place, i), *item, &read);
  }
  item->text = std::move(read.content);
  for (TurnPicture& picture : read.pictures) {
    item->pictures.push_back(
        {picture.content_bytes, std::move(picture.file), std::move(picture.place)});
  }
}

void InputReader::ReadPart(const JsonValue& part, const std::string& place, const Item& item,
                           ChatTurn* read) {
  const std::string_view type = TypeOf(part);
  if (IsPicture(part)) return ReadImage(part, place, item, read);
  if (type == "input_image" && options_.ignore_images) {
    read->content += kImageText;
    return;
  }
  const bool known = type == "input_text" || type == "output_text" || type == "text" ||
                     type == "refusal" || type == "reasoning_text" || type == "summary_text";
  if (!known) {
    return fields_.Fail(place + ".type",
                        fmt::format("'{}' is not supported: this server understands text {}", type,
                                    options_.sees ? "and pictures" : "only"));
  }
  const JsonValue* value = part.Find(type == "refusal" ? "refusal" : "text");
  if (value == nullptr || !value->is_string()) {
    return fields_.Fail(place + ".text", "must be a string");
  }
  read->content += value->as_string();
}

void InputReader::ReadImage(const JsonValue& part, const std::string& place, const Item& item,
                            ChatTurn* read) {
  if (item.kind == Item::Kind::kMessage && item.role != "user") {
    return fields_.Fail(place + ".type",
                        "'input_image' is supported in messages of the user and in outputs of "
                        "calls");
  }
  const JsonValue* file = part.Find("file_id");
  if (file != nullptr && !file->is_null()) {
    return fields_.Fail(place + ".file_id",
                        "is not supported: send the picture as a data URL in image_url",
                        "unsupported_value");
  }
  ReadPictureUrl(part.Find("image_url"), &fields_, place + ".image_url", read);
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
  ReadContent(item.Find("content"), place + ".content", &read);
  items_.push_back(std::move(read));
}

// The text itself, or what SealReasoning made of it; of others' seals nothing can be read.
void InputReader::ReadReasoning(const JsonValue& item, const std::string& place) {
  Item read;
  read.kind = Item::Kind::kReasoning;
  const JsonValue* content = item.Find("content");
  const std::string_view sealed = TextOf(item.Find("encrypted_content"));
  if (content != nullptr && content->is_array() && !content->items().empty()) {
    ReadContent(content, place + ".content", &read);
  } else if (sealed.starts_with(kSeal)) {
    read.text = std::string(sealed.substr(kSeal.size()));
  }
  if (!read.text.empty()) items_.push_back(std::move(read));
}

void InputReader::ReadCall(const JsonValue& item, const std::string& place) {
  Item read;
  const bool custom = TypeOf(item) == "custom_tool_call";
  read.kind = custom ? Item::Kind::kCustomCall : Item::Kind::kCall;
  read.call_id = ReadName(item, "call_id", place);
  read.name = ReadName(item, "name", place);
  const char* const member = custom ? "input" : "arguments";
  const JsonValue* said = item.Find(member);
  if (said == nullptr || !said->is_string()) {
    return fields_.Fail(place + "." + member, "must be a string");
  }
  read.text = said->as_string().empty() && !custom ? "{}" : std::string(said->as_string());
  items_.push_back(std::move(read));
}

void InputReader::ReadCallOutput(const JsonValue& item, const std::string& place) {
  Item read;
  const bool custom = TypeOf(item) == "custom_tool_call_output";
  read.kind = custom ? Item::Kind::kCustomOutput : Item::Kind::kCallOutput;
  read.call_id = ReadName(item, "call_id", place);
  ReadContent(item.Find("output"), place + ".output", &read);
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
      case Item::Kind::kCustomCall: {
        const bool custom = item.kind == Item::Kind::kCustomCall;
        Assistant(!IsOpen());
        names_[item.call_id] = item.name;
        last().calls.push_back(
            {item.call_id, item.name, custom ? WrapInput(item.text.get()) : item.text.get()});
        return;
      }
      case Item::Kind::kCallOutput:
      case Item::Kind::kCustomOutput: {
        ChatTurn& turn = Begin("tool");
        turn.content = item.text.get();
        turn.call_id = item.call_id;
        AddPictures(item, 0, &turn);
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
    AddPictures(item, last().content.size() - item.text.size(), &last());
  }
  static void AddPictures(const Item& item, size_t text_begin, ChatTurn* turn) {
    for (const ItemPicture& picture : item.pictures) {
      turn->pictures.push_back({text_begin + picture.content_bytes,
                                picture.place.empty() ? "input" : picture.place, picture.file.get(),
                                nullptr});
    }
  }

  std::vector<ChatTurn> turns_;
  std::unordered_map<std::string, std::string> names_;  // of the functions that calls name
};

}  // namespace

std::string WrapInput(std::string_view input) {
  std::string arguments;
  JsonWriter(&arguments).BeginObject().Member("input", input).EndObject();
  return arguments;
}

std::string UnwrapInput(std::string_view arguments) {
  const auto parsed = JsonDocument::Parse(arguments);
  const JsonValue* input =
      parsed.ok() && parsed->root().is_object() ? parsed->root().Find("input") : nullptr;
  return std::string(input != nullptr && input->is_string() ? input->as_string() : arguments);
}

size_t Item::bytes() const {
  size_t total = sizeof(Item) + id.size() + text.size() + call_id.size() + name.size();
  for (const ItemPicture& picture : pictures) {
    total += sizeof(ItemPicture) + picture.file.size() + picture.place.size();
  }
  return total;
}

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
