// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/conversation.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "api/anthropic/preamble.h"
#include "api/pictures/picture_url.h"
#include "base/json_writer.h"

namespace reprise::api::anthropic {
namespace {

constexpr size_t kBreakpointsMax = 4;
constexpr size_t kBlocksMax = 4096;
constexpr size_t kIdBytesMax = 256;
constexpr int64_t kMinuteMs = 60'000;
// Templates know no failed results; the model reads it.
constexpr std::string_view kErrorMark = "Error: ";

std::string_view TextOf(const JsonValue* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string_view();
}

std::string_view TypeOf(const JsonValue& block) { return TextOf(block.Find("type")); }

void AppendPart(std::string_view text, std::string* content) {
  if (!content->empty() && !text.empty()) *content += '\n';
  *content += text;
}

int32_t Index(const ChatJob& job) { return static_cast<int32_t>(job.turns.size()); }

// The functions of the calls so far, by their ids.
using CallNames = std::unordered_map<std::string, std::string>;

// Reads the blocks of one message into turns.
class MessageReader {
 public:
  MessageReader(const ServiceOptions& options, std::string place, Fields* fields,
                Breakpoints* breakpoints, CallNames* names, ChatJob* job)
      : options_(options),
        place_(std::move(place)),
        fields_(*fields),
        breakpoints_(*breakpoints),
        names_(*names),
        job_(*job) {}

  void Read(const JsonValue& message);

 private:
  void ReadBlock(const JsonValue& block, const std::string& place);
  void ReadText(const JsonValue& block, const std::string& place);
  void ReadToolUse(const JsonValue& block, const std::string& place);
  void ReadToolResult(const JsonValue& block, const std::string& place);
  void ReadImage(const JsonValue& block, const std::string& place);
  void ReadDocument(const JsonValue& block, const std::string& place);
  bool IsIgnored(const JsonValue& block) const {
    return options_.ignore_images && TypeOf(block) == "image";
  }
  void Unsupported(std::string_view type, const std::string& place);
  void EndTurn();

  const ServiceOptions& options_;
  const std::string place_;
  Fields& fields_;
  Breakpoints& breakpoints_;
  CallNames& names_;
  ChatJob& job_;
  std::string role_;
  ChatTurn turn_;       // being collected
  bool begun_ = false;  // turn_ holds something
};

void MessageReader::Read(const JsonValue& message) {
  if (!message.is_object()) return fields_.Fail(place_, "must be an object");
  role_ = std::string(TextOf(message.Find("role")));
  if (role_ != "user" && role_ != "assistant" && role_ != "system") {
    return fields_.Fail(place_ + ".role", "must be user or assistant");
  }
  const JsonValue* content = message.Find("content");
  if (content != nullptr && content->is_string()) {
    turn_.content = std::string(content->as_string());
    begun_ = true;
    return EndTurn();
  }
  if (content == nullptr || !content->is_array()) {
    return fields_.Fail(place_ + ".content", "must be a string or an array of blocks");
  }
  if (content->items().size() > kBlocksMax) {
    return fields_.Fail(place_ + ".content",
                        fmt::format("must have at most {} blocks", kBlocksMax));
  }
  for (size_t i = 0; i < content->items().size() && fields_.ok(); ++i) {
    ReadBlock(content->items()[i], fmt::format("{}.content[{}]", place_, i));
  }
  EndTurn();
}

void MessageReader::ReadBlock(const JsonValue& block, const std::string& place) {
  const std::string_view type = TypeOf(block);
  if (type.empty()) return fields_.Fail(place, "must be an object with a type");
  const bool assistant = role_ == "assistant";
  if (type == "text") return ReadText(block, place);
  if (type == "tool_use" && assistant) return ReadToolUse(block, place);
  if (type == "tool_result" && role_ == "user") return ReadToolResult(block, place);
  if (type == "document" && role_ == "user") return ReadDocument(block, place);
  if (type == "thinking" && assistant) {
    AppendPart(TextOf(block.Find("thinking")), &turn_.reasoning);
    begun_ = true;
    return;
  }
  if (IsIgnored(block)) {
    AppendPart(kImageText, &turn_.content);
    begun_ = true;
    return breakpoints_.Read(block, place, {Index(job_), turn_.content.size()}, &fields_);
  }
  if (type == "image" && options_.sees && role_ == "user") {
    ReadImage(block, place);
    begun_ = true;
    return breakpoints_.Read(block, place, {Index(job_), turn_.content.size()}, &fields_);
  }
  if (type == "redacted_thinking" && assistant) return;  // nobody can read it here
  Unsupported(type, place);
}

void MessageReader::ReadText(const JsonValue& block, const std::string& place) {
  const JsonValue* text = block.Find("text");
  if (text == nullptr || !text->is_string()) {
    return fields_.Fail(place + ".text", "must be a string");
  }
  AppendText(text->as_string(), &turn_);
  begun_ = true;
  breakpoints_.Read(block, place, {Index(job_), turn_.content.size()}, &fields_);
}

void MessageReader::ReadToolUse(const JsonValue& block, const std::string& place) {
  const JsonValue* input = block.Find("input");
  ToolCall call;
  call.id = std::string(TextOf(block.Find("id")));
  call.name = std::string(TextOf(block.Find("name")));
  if (call.id.empty() || call.id.size() > kIdBytesMax) {
    return fields_.Fail(place + ".id",
                        fmt::format("must be a string of 1 to {} bytes", kIdBytesMax));
  }
  if (call.name.empty()) return fields_.Fail(place + ".name", "must be a string");
  if (input == nullptr || !input->is_object()) {
    return fields_.Fail(place + ".input", "must be an object");
  }
  JsonWriter(&call.arguments).Value(*input);
  names_[call.id] = call.name;
  turn_.calls.push_back(std::move(call));
  begun_ = true;
  // The state behind a call is the one before what follows it.
  breakpoints_.Read(block, place, {Index(job_) + 1, 0}, &fields_);
}

void MessageReader::ReadToolResult(const JsonValue& block, const std::string& place) {
  EndTurn();
  turn_.role = "tool";
  turn_.call_id = std::string(TextOf(block.Find("tool_use_id")));
  if (turn_.call_id.empty() || turn_.call_id.size() > kIdBytesMax) {
    return fields_.Fail(place + ".tool_use_id",
                        fmt::format("must be a string of 1 to {} bytes", kIdBytesMax));
  }
  if (const auto call = names_.find(turn_.call_id); call != names_.end()) {
    turn_.name = call->second;
  }
  const JsonValue* content = block.Find("content");
  if (content != nullptr && content->is_array()) {
    for (size_t i = 0; i < content->items().size(); ++i) {
      const JsonValue& part = content->items()[i];
      if (IsIgnored(part)) {
        AppendPart(kImageText, &turn_.content);
        continue;
      }
      if (TypeOf(part) == "image" && options_.sees) {
        ReadImage(part, fmt::format("{}.content[{}]", place, i));
        continue;
      }
      if (TypeOf(part) != "text") {
        return Unsupported(TypeOf(part), fmt::format("{}.content[{}]", place, i));
      }
      AppendText(TextOf(part.Find("text")), &turn_);
    }
  } else if (content != nullptr && content->is_string()) {
    turn_.content = std::string(content->as_string());
  } else if (content != nullptr && !content->is_null()) {
    return fields_.Fail(place + ".content", "must be a string or an array of blocks");
  }
  const JsonValue* failed = block.Find("is_error");
  if (failed != nullptr && failed->is_bool() && failed->as_bool()) {
    turn_.content.insert(0, kErrorMark);
    for (TurnPicture& picture : turn_.pictures) picture.content_bytes += kErrorMark.size();
  }
  begun_ = true;
  breakpoints_.Read(block, place, {Index(job_), turn_.content.size()}, &fields_);
  EndTurn();
}

void MessageReader::ReadImage(const JsonValue& block, const std::string& place) {
  const JsonValue* source = block.Find("source");
  if (source == nullptr || TypeOf(*source) != "base64") {
    return fields_.Fail(place + ".source",
                        "must be of type base64: this server fetches no pictures",
                        "unsupported_value");
  }
  ReadPictureData(source->Find("data"), &fields_, place + ".source.data", &turn_);
}

// Documents that are text are text.
void MessageReader::ReadDocument(const JsonValue& block, const std::string& place) {
  const JsonValue* source = block.Find("source");
  if (source == nullptr || TypeOf(*source) != "text") {
    return Unsupported("document", place);
  }
  AppendPart(TextOf(block.Find("title")), &turn_.content);
  AppendPart(TextOf(source->Find("data")), &turn_.content);
  begun_ = true;
  breakpoints_.Read(block, place, {Index(job_), turn_.content.size()}, &fields_);
}

void MessageReader::Unsupported(std::string_view type, const std::string& place) {
  fields_.Fail(place + ".type", fmt::format("'{}' is not supported in a message of role {}: this "
                                            "server understands text and tools",
                                            type, role_));
}

void MessageReader::EndTurn() {
  if (std::exchange(begun_, false)) {
    if (turn_.role.empty()) turn_.role = role_;
    job_.turns.push_back(std::move(turn_));
  }
  turn_ = ChatTurn();
}

}  // namespace

void Breakpoints::Read(const JsonValue& block, const std::string& name, Breakpoint place,
                       Fields* fields) {
  const JsonValue* control = block.Find("cache_control");
  if (control == nullptr || control->is_null()) return;
  const std::string member = name.empty() ? "cache_control" : name + ".cache_control";
  if (TypeOf(*control) != "ephemeral") return fields->Fail(member + ".type", "must be ephemeral");
  const JsonValue* ttl = control->Find("ttl");
  const bool hour = TextOf(ttl) == "1h";
  if (ttl != nullptr && !ttl->is_null() && !hour && TextOf(ttl) != "5m") {
    return fields->Fail(member + ".ttl", "must be 5m or 1h");
  }
  if (hour && static_cast<size_t>(hours_) < places_.size()) {
    return fields->Fail(member + ".ttl", "of 1h must not come after one of 5m");
  }
  places_.push_back(place);
  if (hour) ++hours_;
}

void Breakpoints::ReadWhole(const std::vector<ChatTurn>& turns, Fields* fields) {
  const JsonValue* control = fields->Object("cache_control");
  if (control == nullptr || turns.empty()) return;
  const Breakpoint end = {static_cast<int32_t>(turns.size()) - 1, turns.back().content.size()};
  std::string text;
  JsonWriter(&text).BeginObject().Key("cache_control").Value(*control).EndObject();
  const auto whole = JsonDocument::Parse(text);
  Read(whole->root(), "", end, fields);
}

void Breakpoints::Finish(const std::vector<ChatTurn>& turns, CacheControl* cache, Fields* fields) {
  if (places_.size() > kBreakpointsMax) {
    return fields->Fail("cache_control", fmt::format("may stand at {} places at most; there are {}",
                                                     kBreakpointsMax, places_.size()));
  }
  if (places_.empty() || turns.empty()) return;
  for (Breakpoint& place : places_) {
    if (place.turn >= static_cast<int32_t>(turns.size())) {
      place = {static_cast<int32_t>(turns.size()) - 1, turns.back().content.size()};
    }
  }
  cache->breakpoints = places_;
  cache->pin_ms = (hours_ > 0 ? 60 : 5) * kMinuteMs;
}

void ReadSystem(bool strip_preambles, Fields* fields, Breakpoints* breakpoints, ChatJob* job) {
  const JsonValue* system = fields->Find("system");
  if (system == nullptr) return;
  ChatTurn turn;
  turn.role = "system";
  const auto strip = [&](std::string_view text) {
    return strip_preambles ? StripPreamble(text) : text;
  };
  if (system->is_string()) {
    turn.content = std::string(strip(system->as_string()));
  } else {
    const JsonValue* blocks = fields->Array("system", kBlocksMax);
    if (blocks == nullptr) return;
    for (size_t i = 0; i < blocks->items().size(); ++i) {
      const JsonValue& block = blocks->items()[i];
      const std::string place = fmt::format("system[{}]", i);
      const JsonValue* text = block.Find("text");
      if (TypeOf(block) != "text" || text == nullptr || !text->is_string()) {
        return fields->Fail(place, "must be a block of type text");
      }
      AppendPart(strip(text->as_string()), &turn.content);
      breakpoints->Read(block, place, {0, turn.content.size()}, fields);
    }
  }
  if (!turn.content.empty()) job->turns.push_back(std::move(turn));
}

void ReadMessages(const ServiceOptions& options, Fields* fields, Breakpoints* breakpoints,
                  ChatJob* job) {
  const auto count_max = static_cast<size_t>(options.message_count_max);
  const JsonValue* messages = fields->Array("messages", count_max);
  if (messages == nullptr || messages->items().empty()) {
    if (fields->ok()) fields->Fail("messages", "must have at least one message");
    return;
  }
  CallNames names;
  for (size_t i = 0; i < messages->items().size() && fields->ok(); ++i) {
    MessageReader(options, fmt::format("messages[{}]", i), fields, breakpoints, &names, job)
        .Read(messages->items()[i]);
  }
}

}  // namespace reprise::api::anthropic
