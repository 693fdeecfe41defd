// SPDX-License-Identifier: Apache-2.0
#include "api/ops/trace.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace reprise::api {
namespace {

constexpr size_t kTraceDigits = 32;
constexpr size_t kSpanDigits = 16;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

int64_t Ns(double ms) { return std::llround(std::max(0.0, ms) * 1e6); }

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr size_t kBytes = 2 + 1 + kTraceDigits + 1 + kSpanDigits + 1 + 2;
  if (text.size() < kBytes || !IsHex(text.substr(0, 2)) || text.starts_with("ff")) return {};
  // Later versions may say more, behind another '-'.
  const bool first = text.starts_with("00");
  if (text.size() > kBytes && (first || text[kBytes] != '-')) return {};
  const std::string_view trace = text.substr(3, kTraceDigits);
  const std::string_view parent = text.substr(4 + kTraceDigits, kSpanDigits);
  const std::string_view flags = text.substr(5 + kTraceDigits + kSpanDigits, 2);
  if (text[2] != '-' || text[3 + kTraceDigits] != '-' ||
      text[4 + kTraceDigits + kSpanDigits] != '-') {
    return {};
  }
  if (!IsHex(trace) || !IsHex(parent) || !IsHex(flags) || IsZero(trace) || IsZero(parent)) {
    return {};
  }
  const bool odd = std::string_view("13579bdf").find(flags[1]) != std::string_view::npos;
  return TraceContext{std::string(trace), std::string(parent), odd};
}

TraceContext ReadTrace(const http::Request& request) {
  if (auto context = ParseTraceparent(request.Header("traceparent"))) return *context;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  TraceContext context;
  while (context.trace_id.size() < kTraceDigits) context.trace_id += kDigits[random() % 16];
  return context;
}

void ReplyTrace::Describe(const Completion& completion) {
  const ReuseReport& report = completion.report;
  prompt_tokens = completion.prompt_tokens;
  used_tokens = report.used_tokens;
  reply_tokens = completion.generated_tokens;
  reason = NameOf(report.reason);
  finish = NameOf(completion.reason);
  // What is known are lengths: what happened before the first step is laid end to end.
  const int64_t before = Ns(completion.queue_ms);
  look_up_ns = std::min(before, Ns(completion.look_up_ms));
  load_ns = std::min(before - look_up_ns, report.load_ns + report.restore_ns);
  queue_ns = before - look_up_ns - load_ns;
  prefill_ns = Ns(completion.first_token_ms - completion.queue_ms);
  decode_ns = Ns(completion.total_ms - completion.first_token_ms);
}

}  // namespace reprise::api
