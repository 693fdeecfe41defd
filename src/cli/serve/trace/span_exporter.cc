// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/trace/span_exporter.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/log.h"
#include "cli/serve/trace/otlp.h"
#include "hub/net/client.h"

namespace reprise::cli {
namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kWaitingMax = 2048;
constexpr size_t kBatchMax = 256;
constexpr auto kPause = std::chrono::milliseconds(500);  // a request gathers what comes meanwhile
constexpr auto kPatience = std::chrono::milliseconds(5000);
constexpr auto kQuiet = std::chrono::minutes(1);  // between two lines about lost spans

// "name=value,other=value".
std::vector<std::pair<std::string, std::string>> ParseHeaders(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> headers;
  const auto printable = [](char c) { return c > 0x20 && c < 0x7f; };
  while (!text.empty()) {
    const size_t end = text.find(',');
    const std::string_view pair = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const size_t equal = pair.find('=');
    if (equal == std::string_view::npos || equal == 0) continue;
    if (!std::all_of(pair.begin(), pair.end(), printable)) continue;
    headers.emplace_back(pair.substr(0, equal), pair.substr(equal + 1));
  }
  return headers;
}

}  // namespace

Result<std::unique_ptr<SpanExporter>> SpanExporter::Open(const std::string& endpoint) {
  std::string address = endpoint;
  while (address.ends_with('/')) address.pop_back();
  if (!address.ends_with("/v1/traces")) address += "/v1/traces";
  Result<hub::Url> url = hub::Url::Parse(address);
  if (!url.ok()) {
    return url.status().Annotate("--otlp-endpoint '" + endpoint +
                                 "' (an address such as http://localhost:4318)");
  }
  const std::string name = hub::ProcessEnvironment("OTEL_SERVICE_NAME");
  return std::unique_ptr<SpanExporter>(
      new SpanExporter(std::move(*url), name.empty() ? "reprise" : name,
                       ParseHeaders(hub::ProcessEnvironment("OTEL_EXPORTER_OTLP_HEADERS"))));
}

SpanExporter::SpanExporter(hub::Url url, std::string service_name,
                           std::vector<std::pair<std::string, std::string>> headers)
    : url_(std::move(url)),
      service_name_(std::move(service_name)),
      headers_(std::move(headers)),
      said_at_(Time::now() - kQuiet),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SpanExporter::Add(api::ReplyTrace trace) {
  if (!trace.context.sampled) return;
  const std::lock_guard lock(mutex_);
  if (waiting_.size() == kWaitingMax) {
    waiting_.pop_front();
    ++dropped_;
  }
  waiting_.push_back(std::move(trace));
}

void SpanExporter::Run() {
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait_for(lock, kPause, [this] { return stop_; });
    last = stop_;
    std::vector<api::ReplyTrace> batch;
    while (!waiting_.empty() && batch.size() < kBatchMax) {
      batch.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    const size_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    if (dropped > 0) NoteLost(dropped, "the collector is too slow");
    if (!batch.empty()) {
      const Status sent = Post(FormatOtlp(batch, service_name_));
      if (!sent.ok()) NoteLost(batch.size(), sent.message());
      last = last && !sent.ok();  // while it takes them, all are sent
    }
    lock.lock();
    last = last || (stop_ && waiting_.empty());
  }
}

Status SpanExporter::Post(const std::string& body) {
  hub::HttpRequest request;
  request.method = "POST";
  request.url = url_;
  request.headers = headers_;
  request.headers.emplace_back("Content-Type", "application/json");
  request.body = body;
  request.other_hosts = false;
  hub::HttpOptions options;
  options.cancelled = &cancelled_;
  options.connect_limit = options.answer_limit = options.pause_limit = kPatience;
  REPRISE_ASSIGN(const hub::HttpAnswer answer, hub::Fetch(request, options, {}));
  if (answer.head.status >= 200 && answer.head.status < 300) return OkStatus();
  return Internal(url_.host + " answers " + std::to_string(answer.head.status));
}

void SpanExporter::NoteLost(size_t count, const std::string& why) {
  lost_ += count;
  if (Time::now() - said_at_ < kQuiet) return;
  said_at_ = Time::now();
  Log(LogLevel::kWarning,
      "the spans of " + std::to_string(std::exchange(lost_, 0)) + " replies were lost: " + why);
}

}  // namespace reprise::cli
