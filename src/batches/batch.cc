// SPDX-License-Identifier: Apache-2.0
#include "batches/batch.h"

#include <utility>

#include "batches/file_store.h"

namespace reprise::batches {
namespace {

constexpr size_t kCustomIdBytesMax = 512;

void WriteText(const char* key, const std::string& text, JsonWriter* json) {
  json->Key(key);
  text.empty() ? json->Null() : json->String(text);
}

void WriteTime(const char* key, int64_t time, JsonWriter* json) {
  json->Key(key);
  time == 0 ? json->Null() : json->Int(time);
}

std::string TextOf(const JsonValue& object, const char* key) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

int64_t NumberOf(const JsonValue& object, const char* key) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

void WriteMembers(const Batch& batch, JsonWriter* json) {
  json->Member("id", batch.id).Member("object", "batch").Member("endpoint", batch.endpoint);
  json->Key("errors");
  if (batch.error.empty()) {
    json->Null();
  } else {
    json->BeginObject().Member("object", "list").Key("data").BeginArray().BeginObject();
    json->Member("code", "invalid_request").Member("message", batch.error).Key("param").Null();
    WriteTime("line", batch.error_line, json);
    json->EndObject().EndArray().EndObject();
  }
  json->Member("input_file_id", batch.input_file_id);
  json->Member("completion_window", batch.completion_window).Member("status", batch.status);
  WriteText("output_file_id", batch.output_file_id, json);
  WriteText("error_file_id", batch.error_file_id, json);
  json->Member("created_at", batch.created_at);
  WriteTime("in_progress_at", batch.in_progress_at, json);
  WriteTime("expires_at", batch.expires_at, json);
  for (const char* end : {"completed", "failed", "expired", "cancelled"}) {
    WriteTime((std::string(end) + "_at").c_str(), batch.status == end ? batch.ended_at : 0, json);
  }
  json->Key("finalizing_at").Null().Key("cancelling_at").Null();
  json->Key("request_counts").BeginObject().Member("total", batch.total);
  json->Member("completed", batch.completed).Member("failed", batch.failed).EndObject();
  json->Key("metadata").Raw(batch.metadata);
}

}  // namespace

bool Batch::ended() const {
  return status == "completed" || status == "failed" || status == "cancelled" ||
         status == "expired";
}

void WriteBatch(const Batch& batch, JsonWriter* json) {
  json->BeginObject();
  WriteMembers(batch, json);
  json->EndObject();
}

std::string FormatRecord(const Batch& batch) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject();
  WriteMembers(batch, &json);
  json.Member("tenant", batch.tenant).EndObject();
  return text;
}

Result<Batch> ParseRecord(std::string_view text) {
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(text));
  const JsonValue& root = document.root();
  if (!root.is_object()) return DataLoss("it is not a batch");
  Batch batch;
  batch.id = TextOf(root, "id");
  batch.tenant = TextOf(root, "tenant");
  batch.endpoint = TextOf(root, "endpoint");
  batch.input_file_id = TextOf(root, "input_file_id");
  batch.output_file_id = TextOf(root, "output_file_id");
  batch.error_file_id = TextOf(root, "error_file_id");
  batch.completion_window = TextOf(root, "completion_window");
  batch.status = TextOf(root, "status");
  batch.created_at = NumberOf(root, "created_at");
  batch.in_progress_at = NumberOf(root, "in_progress_at");
  batch.expires_at = NumberOf(root, "expires_at");
  if (batch.id.empty() || batch.tenant.empty()) return DataLoss("it is not a batch");
  if (batch.ended()) batch.ended_at = NumberOf(root, (batch.status + "_at").c_str());
  if (const JsonValue* counts = root.Find("request_counts"); counts && counts->is_object()) {
    batch.total = NumberOf(*counts, "total");
    batch.completed = NumberOf(*counts, "completed");
    batch.failed = NumberOf(*counts, "failed");
  }
  if (const JsonValue* metadata = root.Find("metadata"); metadata && metadata->is_object()) {
    batch.metadata.clear();
    JsonWriter(&batch.metadata).Value(*metadata);
  }
  const JsonValue* errors = root.Find("errors");
  const JsonValue* list = errors && errors->is_object() ? errors->Find("data") : nullptr;
  if (list != nullptr && list->is_array() && !list->items().empty()) {
    batch.error = TextOf(list->items().front(), "message");
    batch.error_line = NumberOf(list->items().front(), "line");
  }
  return batch;
}

Result<BatchLine> ParseLine(std::string_view line, std::string_view endpoint) {
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(line));
  const JsonValue& root = document.root();
  if (!root.is_object()) return InvalidArgument("it is not a JSON object");
  BatchLine read;
  read.custom_id = TextOf(root, "custom_id");
  if (read.custom_id.empty() || read.custom_id.size() > kCustomIdBytesMax) {
    return InvalidArgument("custom_id must be a string of 1 to " +
                           std::to_string(kCustomIdBytesMax) + " bytes");
  }
  if (TextOf(root, "method") != "POST") return InvalidArgument("method must be POST");
  if (TextOf(root, "url") != endpoint) {
    return InvalidArgument("url must be " + std::string(endpoint) + ", the batch's endpoint");
  }
  const JsonValue* body = root.Find("body");
  if (body == nullptr || !body->is_object()) return InvalidArgument("body must be an object");
  const JsonValue* stream = body->Find("stream");
  if (stream != nullptr && !(stream->is_bool() && !stream->as_bool()) && !stream->is_null()) {
    return InvalidArgument("body.stream is not possible in a batch");
  }
  JsonWriter(&read.body).Value(*body);
  return read;
}

std::string FormatAnswer(const std::string& batch_id, const std::string& custom_id, int status,
                         const std::string& request_id, const std::string& body) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("id", "batch_req_" + batch_id + "_" + request_id);
  json.Member("custom_id", custom_id).Key("response").BeginObject();
  json.Member("status_code", status).Member("request_id", request_id).Key("body");
  const bool is_json = JsonDocument::Parse(body).ok();
  is_json ? json.Raw(body) : json.String(body);
  json.EndObject().Key("error").Null().EndObject();
  return text + "\n";
}

std::string AnsweredId(std::string_view line) {
  const auto document = JsonDocument::Parse(line);
  if (!document.ok() || !document->root().is_object()) return "";
  return TextOf(document->root(), "custom_id");
}

}  // namespace reprise::batches
