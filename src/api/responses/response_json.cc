// SPDX-License-Identifier: Apache-2.0
#include "api/responses/response_json.h"

#include <utility>

#include "api/openai/format.h"
#include "api/pictures/picture_url.h"
#include "api/responses/store.h"

namespace reprise::api::responses {
namespace {

using Kind = OutputEvent::Kind;

const char* NameOf(ItemStatus status) {
  switch (status) {
    case ItemStatus::kInProgress:
      return "in_progress";
    case ItemStatus::kCompleted:
      return "completed";
    case ItemStatus::kIncomplete:
      return "incomplete";
  }
  return "";
}

const char* PrefixOf(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return "rs_";
    case Kind::kCallBegin:
      return "fc_";
    default:
      return "msg_";
  }
}

void WriteUsage(const Usage& usage, JsonWriter* json) {
  json->BeginObject().Member("input_tokens", usage.prompt_tokens);
  json->Key("input_tokens_details").BeginObject().Member("cached_tokens", usage.cached_tokens);
  json->Member("cache_write_tokens", usage.written_tokens).EndObject();
  json->Member("output_tokens", usage.completion_tokens);
  json->Key("output_tokens_details").BeginObject();
  json->Member("reasoning_tokens", usage.reasoning_tokens).EndObject();
  json->Member("total_tokens", usage.prompt_tokens + usage.completion_tokens).EndObject();
}

}  // namespace

OutputItem MakeOutputItem(const ResponseHead& head, size_t index, Block block) {
  const char* const prefix = head.IsCustom(block) ? "ctc_" : PrefixOf(block.kind);
  std::string id = MakeItemId(prefix, head.id, index);
  return {std::move(id), std::move(block), {}};
}

Item ToItem(const ResponseHead& head, const OutputItem& output) {
  Item item;
  item.id = output.id;
  item.text = output.block.text;
  switch (output.block.kind) {
    case Kind::kReasoning:
      item.kind = Item::Kind::kReasoning;
      break;
    case Kind::kCallBegin:
      item.kind = Item::Kind::kCall;
      item.call_id = output.block.id;
      item.name = output.block.name;
      if (!head.IsCustom(output.block)) break;
      item.kind = Item::Kind::kCustomCall;
      item.text = UnwrapInput(output.block.text);
      break;
    default:
      item.kind = Item::Kind::kMessage;
      item.role = "assistant";
      break;
  }
  return item;
}

void WriteLogprobs(const std::vector<ReplyToken>& tokens, JsonWriter* json) {
  json->BeginArray();
  for (const ReplyToken& token : tokens) openai::WriteTokenWithTop(token, json);
  json->EndArray();
}

void WritePart(const OutputItem& item, const ResponseHead& head, bool empty, JsonWriter* json) {
  const std::string_view text = empty ? std::string_view() : item.block.text;
  json->BeginObject();
  if (item.block.kind == Kind::kReasoning) {
    json->Member("type", "reasoning_text").Member("text", text).EndObject();
    return;
  }
  json->Member("type", "output_text").Member("text", text);
  json->Key("annotations").BeginArray().EndArray().Key("logprobs");
  WriteLogprobs(empty || !head.logprobs ? std::vector<ReplyToken>() : item.tokens, json);
  json->EndObject();
}

void WriteItem(const OutputItem& item, const ResponseHead& head, ItemStatus status,
               JsonWriter* json) {
  const Block& block = item.block;
  const bool empty = status == ItemStatus::kInProgress;
  const auto write_content = [&] {
    json->Key("content").BeginArray();
    if (!empty) WritePart(item, head, false, json);
    json->EndArray();
  };
  json->BeginObject().Member("id", item.id);
  switch (block.kind) {
    case Kind::kReasoning:
      json->Member("type", "reasoning").Key("summary").BeginArray().EndArray();
      write_content();
      json->Key("encrypted_content");
      head.seal_reasoning && !empty ? json->String(SealReasoning(block.text)) : json->Null();
      break;
    case Kind::kCallBegin:
      if (head.IsCustom(block)) {
        json->Member("type", "custom_tool_call").Member("call_id", block.id);
        json->Member("name", block.name).Member("input", empty ? "" : UnwrapInput(block.text));
      } else {
        json->Member("type", "function_call").Member("call_id", block.id);
        json->Member("name", block.name);
        json->Member("arguments", empty ? std::string_view() : block.text);
      }
      if (const auto space = head.namespaces.find(block.name); space != head.namespaces.end()) {
        json->Member("namespace", space->second);
      }
      break;
    default:
      json->Member("type", "message").Member("role", "assistant");
      write_content();
      break;
  }
  json->Member("status", NameOf(status)).EndObject();
}

// Texts and pictures of an input in their order, as parts.
void WriteInputParts(const Item& item, JsonWriter* json) {
  const std::string_view text = item.text.get();
  json->BeginArray();
  size_t begin = 0;
  const auto write_text = [&](size_t end) {
    if (begin == end) return;
    json->BeginObject().Member("type", "input_text");
    json->Member("text", text.substr(begin, end - begin)).EndObject();
    begin = end;
  };
  for (const ItemPicture& picture : item.pictures) {
    write_text(picture.content_bytes);
    json->BeginObject().Member("type", "input_image").Member("detail", "auto");
    json->Member("image_url", MakePictureUrl(picture.file.get())).EndObject();
  }
  if (item.pictures.empty() && text.empty()) {
    json->BeginObject().Member("type", "input_text").Member("text", "").EndObject();
  }
  write_text(text.size());
  json->EndArray();
}

void WriteInputItem(const Item& item, const std::string& id, JsonWriter* json) {
  json->BeginObject().Member("id", id);
  switch (item.kind) {
    case Item::Kind::kMessage: {
      json->Member("type", "message").Member("role", item.role).Key("content");
      if (item.role != "assistant") {
        WriteInputParts(item, json);
        break;
      }
      json->BeginArray().BeginObject().Member("type", "output_text");
      json->Member("text", item.text.get());
      json->Key("annotations").BeginArray().EndArray();
      json->Key("logprobs").BeginArray().EndArray();
      json->EndObject().EndArray();
      break;
    }
    case Item::Kind::kReasoning:
      json->Member("type", "reasoning").Key("summary").BeginArray().EndArray();
      json->Key("content").BeginArray().BeginObject().Member("type", "reasoning_text");
      json->Member("text", item.text.get()).EndObject().EndArray();
      break;
    case Item::Kind::kCall:
      json->Member("type", "function_call").Member("call_id", item.call_id);
      json->Member("name", item.name).Member("arguments", item.text.get());
      break;
    case Item::Kind::kCustomCall:
      json->Member("type", "custom_tool_call").Member("call_id", item.call_id);
      json->Member("name", item.name).Member("input", item.text.get());
      break;
    case Item::Kind::kCallOutput:
    case Item::Kind::kCustomOutput:
      json->Member("type", item.kind == Item::Kind::kCallOutput ? "function_call_output"
                                                                : "custom_tool_call_output");
      json->Member("call_id", item.call_id);
      json->Key("output");
      if (item.pictures.empty()) {
        json->String(item.text.get());
      } else {
        WriteInputParts(item, json);
      }
      break;
  }
  json->Member("status", "completed").EndObject();
}

ItemStatus StatusOf(const OutputItem& item) {
  return item.block.complete ? ItemStatus::kCompleted : ItemStatus::kIncomplete;
}

const char* StatusOf(const ResponseEnd& end) {
  if (end.cancelled) return "cancelled";
  if (end.choice == nullptr) return "failed";
  return end.choice->stop == StopKind::kLength ? "incomplete" : "completed";
}

void WriteResponse(const ResponseHead& head, const std::vector<OutputItem>& items,
                   const ResponseEnd* end, JsonWriter* json) {
  const char* const waiting = head.queued ? "queued" : "in_progress";
  const std::string_view status = end == nullptr ? waiting : StatusOf(*end);
  json->BeginObject().Member("id", head.id).Member("object", "response");
  json->Member("created_at", head.created).Member("status", status).Member("model", head.model);
  json->Key("completed_at");
  status == "completed" ? json->Int(openai::NowSeconds()) : json->Null();
  json->Key("error");
  if (status == "failed") {
    json->BeginObject().Member("code", "server_error").Member("message", end->error.message);
    json->EndObject();
  } else {
    json->Null();
  }
  json->Key("incomplete_details");
  if (status == "incomplete") {
    json->BeginObject().Member("reason", "max_output_tokens").EndObject();
  } else {
    json->Null();
  }
  json->Key("output").BeginArray();
  for (size_t i = 0; i < items.size(); ++i) {
    const bool cut = status == "incomplete" && i + 1 == items.size();
    WriteItem(items[i], head, cut ? ItemStatus::kIncomplete : StatusOf(items[i]), json);
  }
  json->EndArray().Raw(head.settings);
  if (end != nullptr && end->choice != nullptr) {
    json->Key("usage");
    WriteUsage(end->usage, json);
    json->Key("reprise").Raw(end->report);
  }
  json->EndObject();
}

}  // namespace reprise::api::responses
