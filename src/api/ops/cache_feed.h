// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/service.h"

namespace reprise::api {

// Those who watch the cache live (GET /v1/cache/events). When the engine has changed something,
// each of them is sent the view of it, at most every kInterval (less often where it takes long),
// without the parts it has seen; when nothing changes, nothing is done.
//
// Thread safety: all methods from any thread.
class CacheFeed {
 public:
  static constexpr size_t kWatchersMax = 64;
  static constexpr size_t kTenantWatchersMax = 16;  // of one tenant, where there are several
  static constexpr std::chrono::milliseconds kInterval{100};
  static constexpr std::chrono::milliseconds kIntervalMax{1000};

  explicit CacheFeed(Service* service) : service_(service) {}

  // False if too many watch already, or too many of this tenant's.
  bool Watch(const http::ExchangePtr& exchange, const Tenant* tenant, std::string salt);
  // The engine changed something, or a report is new. Quick.
  void Wake();
  // Ends all streams.
  void Close();

 private:
  struct Watcher;
  void Schedule(const std::shared_ptr<Watcher>& watcher);
  int64_t PauseAfter(int64_t collect_ns) const;
  void Push(const std::shared_ptr<Watcher>& watcher);

  Service* const service_;
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
};

}  // namespace reprise::api
