// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/ops/trace.h"
#include "base/status.h"
#include "hub/net/url.h"

namespace reprise::cli {

// Sends spans to a collector by OTLP over HTTP, on a thread of its own: whoever answers requests
// never waits for it. At most 2,048 replies wait; when a collector is slow or away the oldest are
// dropped, and the log says how many, once a minute at most.
//
// Thread safety: all.
class SpanExporter final : public api::TraceSink {
 public:
  // `endpoint`: "http://collector:4318", to which "/v1/traces" is added. The environment's
  // OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_HEADERS ("name=value,...") are followed.
  static Result<std::unique_ptr<SpanExporter>> Open(const std::string& endpoint);
  // Sends what waits, for a moment, and ends.
  ~SpanExporter() override;

  void Add(api::ReplyTrace trace) override;

 private:
  SpanExporter(hub::Url url, std::string service_name,
               std::vector<std::pair<std::string, std::string>> headers);

  void Run();
  Status Post(const std::string& body);
  void NoteLost(size_t count, const std::string& why);

  const hub::Url url_;
  const std::string service_name_;
  const std::vector<std::pair<std::string, std::string>> headers_;
  size_t lost_ = 0;  // of the thread: since the log last said so
  std::chrono::steady_clock::time_point said_at_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<api::ReplyTrace> waiting_;
  size_t dropped_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace reprise::cli
