// SPDX-License-Identifier: Apache-2.0
#include "api/chat/report.h"

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"

namespace reprise::api {
namespace {

constexpr size_t kTokensAround = 12;

double Rounded(double ms) { return std::round(ms * 1000) / 1000; }

// Drafts that were run and kept, by where they came from; and why there are none now.
void WriteSpeculation(const SpeculationReport& speculation, JsonWriter* json) {
  json->Key("speculation").BeginObject();
  const DraftCount total = speculation.total();
  json->Member("drafted", total.run).Member("accepted", total.accepted);
  for (size_t i = 0; i < speculation.drafts.size(); ++i) {
    const DraftCount& one = speculation.drafts[i];
    if (one.run == 0) continue;
    json->Key(NameOf(static_cast<Drafts>(i))).BeginObject();
    json->Member("drafted", one.run).Member("accepted", one.accepted).EndObject();
  }
  if (speculation.rest != DraftRest::kNone) json->Member("rests", NameOf(speculation.rest));
  json->EndObject();
}

void WriteRate(const char* prefix, int64_t count, double ms, JsonWriter* json) {
  const std::string name = prefix;
  const double tokens = static_cast<double>(count);
  json->Member(name + "_n", count).Member(name + "_ms", Rounded(ms));
  json->Member(name + "_per_token_ms", count > 0 ? Rounded(ms / tokens) : 0.0);
  json->Member(name + "_per_second", ms > 0 ? Rounded(tokens * 1000 / ms) : 0.0);
}

}  // namespace

void WriteTimings(const Completion& completion, JsonWriter* json) {
  const int64_t cached = completion.report.used_tokens;
  json->Key("timings").BeginObject().Member("cache_n", cached);
  WriteRate("prompt", completion.prompt_tokens - cached,
            completion.first_token_ms - completion.queue_ms, json);
  WriteRate("predicted", completion.generated_tokens,
            completion.total_ms - completion.first_token_ms, json);
  if (const DraftCount drafts = completion.speculation.total(); drafts.run > 0) {
    json->Member("draft_n", drafts.run).Member("draft_n_accepted", drafts.accepted);
  }
  json->EndObject();
}

void WriteProgress(const Progress& progress, JsonWriter* json) {
  json->Key("prompt_progress").BeginObject().Member("total", progress.total);
  json->Member("cache", progress.cached).Member("processed", progress.processed);
  json->Member("time_ms", progress.ms).EndObject();
}

std::string FormatReportJson(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                             std::string_view session, std::span<const std::string> passed_fields,
                             const Completion& completion) {
  const ReuseReport& report = completion.report;
  std::string text;
  JsonWriter json(&text);
  json.BeginObject();
  if (!session.empty()) json.Member("session", session);
  if (!passed_fields.empty()) {
    json.Key("passed_fields").BeginArray();
    for (const std::string& name : passed_fields) json.String(name);
    json.EndArray();
  }
  json.Member("prompt_tokens", report.prompt_tokens);
  json.Member("known_tokens", report.known_tokens);
  json.Member("kv_tokens", report.kv_tokens);
  json.Member("state_tokens", report.state_tokens);
  json.Member("used_tokens", report.used_tokens);
  json.Member("stored_tokens", report.stored_tokens);
  json.Member("reason", NameOf(report.reason));
  if (report.diverged_at >= 0 && static_cast<size_t>(report.diverged_at) <= prompt.size()) {
    const size_t at = static_cast<size_t>(report.diverged_at);
    const size_t begin = at - std::min(at, kTokensAround);
    const size_t end = std::min(prompt.size(), at + kTokensAround);
    json.Key("diverged").BeginObject().Member("position", report.diverged_at);
    json.Member("before", tokenizer.Decode(prompt.subspan(begin, at - begin), true));
    json.Member("after", tokenizer.Decode(prompt.subspan(at, end - at), true)).EndObject();
  }
  json.Member("snapshots_taken", report.snapshots_taken);
  json.Member("snapshots_declined", report.snapshots_declined);
  json.Member("tier", report.loaded_tokens > 0 ? report.load_tier
                      : report.used_tokens > 0 ? std::string_view("memory")
                                               : std::string_view("none"));
  if (report.loaded_tokens > 0) {
    json.Key("loaded").BeginObject().Member("tokens", report.loaded_tokens);
    json.Member("bytes", report.load_bytes);
    json.Member("ms", Rounded(static_cast<double>(report.load_ns) / 1e6)).EndObject();
  }
  if (report.kept_tokens > 0 || report.rounded) {
    json.Key("lossy").BeginObject();
    json.Member("method", report.kept_tokens > 0 ? "snapkv" : "snapshots");
    if (report.rounded) json.Member("snapshots", "bf16");
    if (report.kept_tokens > 0) {
      json.Member("kept_tokens", report.kept_tokens);
      json.Member("of_tokens", report.prompt_tokens).Key("along").BeginArray();
      for (const uint8_t percent : report.kept_along) json.Int(percent);
      json.EndArray();
    }
    json.EndObject();
  }
  json.Member("restore_ms", Rounded(static_cast<double>(report.restore_ns) / 1e6));
  json.Member("queue_ms", Rounded(completion.queue_ms));
  json.Member("first_token_ms", Rounded(completion.first_token_ms));
  json.Member("total_ms", Rounded(completion.total_ms));
  json.Member("generated_tokens", completion.generated_tokens);
  json.Member("preemptions", completion.preemptions);
  WriteSpeculation(completion.speculation, &json);
  json.EndObject();
  return text;
}

}  // namespace reprise::api
