// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/trace/otlp.h"

#include <cstdint>
#include <random>
#include <string_view>

#include "base/json_writer.h"
#include "version.gen.h"

namespace reprise::cli {
namespace {

constexpr int kInternal = 1;  // OTLP's kinds of spans
constexpr int kServer = 2;
constexpr int kOk = 1;  // and of ends
constexpr int kFailed = 2;

std::string NewSpanId() {
  static constexpr char kDigits[] = "0123456789abcdef";
  thread_local std::mt19937_64 random{std::random_device()()};
  const uint64_t number = random() | 1;  // never zero
  std::string id;
  for (int i = 0; i < 16; ++i) id += kDigits[number >> (4 * i) & 15];
  return id;
}

void Attribute(const char* key, std::string_view value, JsonWriter* json) {
  json->BeginObject().Member("key", key).Key("value").BeginObject();
  json->Member("stringValue", value).EndObject().EndObject();
}

// 64-bit integers are strings in OTLP's JSON.
void Attribute(const char* key, int64_t value, JsonWriter* json) {
  json->BeginObject().Member("key", key).Key("value").BeginObject();
  json->Member("intValue", std::to_string(value)).EndObject().EndObject();
}

// The members that all spans have; leaves the object open.
void BeginSpan(const api::ReplyTrace& trace, const std::string& id, const std::string& parent,
               std::string_view name, int kind, int64_t begin_ns, int64_t ns, JsonWriter* json) {
  json->BeginObject().Member("traceId", trace.context.trace_id).Member("spanId", id);
  if (!parent.empty()) json->Member("parentSpanId", parent);
  json->Member("name", name).Member("kind", kind);
  json->Member("startTimeUnixNano", std::to_string(begin_ns));
  json->Member("endTimeUnixNano", std::to_string(begin_ns + ns));
}

void WriteReply(const api::ReplyTrace& trace, JsonWriter* json) {
  const std::string id = NewSpanId();
  BeginSpan(trace, id, trace.context.parent_id, "POST " + trace.path, kServer, trace.begin_unix_ns,
            trace.total_ns, json);
  json->Key("attributes").BeginArray();
  Attribute("http.request.method", "POST", json);
  Attribute("http.route", trace.path, json);
  Attribute("gen_ai.provider.name", "reprise", json);
  Attribute("gen_ai.request.model", trace.model, json);
  Attribute("gen_ai.usage.input_tokens", trace.prompt_tokens, json);
  Attribute("gen_ai.usage.output_tokens", trace.reply_tokens, json);
  Attribute("reprise.request_id", trace.request_id, json);
  Attribute("reprise.tenant", trace.tenant, json);
  Attribute("reprise.used_tokens", trace.used_tokens, json);
  if (!trace.reason.empty()) Attribute("reprise.reason", trace.reason, json);
  if (!trace.finish.empty()) Attribute("reprise.finish", trace.finish, json);
  json->EndArray().Key("status").BeginObject();
  json->Member("code", trace.error.empty() ? kOk : kFailed);
  if (!trace.error.empty()) json->Member("message", trace.error);
  json->EndObject().EndObject();
  const std::pair<const char*, int64_t> phases[] = {{"queue", trace.queue_ns},
                                                    {"look-up", trace.look_up_ns},
                                                    {"load", trace.load_ns},
                                                    {"prefill", trace.prefill_ns},
                                                    {"decode", trace.decode_ns}};
  int64_t begin = trace.begin_unix_ns;
  for (const auto& [name, ns] : phases) {
    if (ns > 0) {
      BeginSpan(trace, NewSpanId(), id, name, kInternal, begin, ns, json);
      json->EndObject();
    }
    begin += ns;
  }
}

}  // namespace

std::string FormatOtlp(std::span<const api::ReplyTrace> traces, const std::string& service_name) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Key("resourceSpans").BeginArray().BeginObject();
  json.Key("resource").BeginObject().Key("attributes").BeginArray();
  Attribute("service.name", service_name, &json);
  Attribute("service.version", kVersion, &json);
  json.EndArray().EndObject();
  json.Key("scopeSpans").BeginArray().BeginObject().Key("scope").BeginObject();
  json.Member("name", "reprise").Member("version", kVersion).EndObject();
  json.Key("spans").BeginArray();
  for (const api::ReplyTrace& trace : traces) WriteReply(trace, &json);
  json.EndArray().EndObject().EndArray().EndObject().EndArray().EndObject();
  return text;
}

}  // namespace reprise::cli
