// SPDX-License-Identifier: Apache-2.0
#include "api/ops/cache_feed.h"

#include <algorithm>
#include <utility>

#include "api/ops/cache_view.h"

namespace reprise::api {

struct CacheFeed::Watcher {
  http::ExchangePtr exchange;
  const Tenant* tenant = nullptr;
  std::string salt;
  std::atomic<bool> scheduled{false};
  std::atomic<int64_t> pause_ms{kInterval.count()};
  ops::SeenView seen;  // server thread
};

namespace {

// A watcher that reads slowly gets fewer, newer views.
constexpr size_t kPendingBytesMax = size_t{64} << 10;

}  // namespace

// Half a percent of the engine's time for all watchers together, unless they would wait too long.
int64_t CacheFeed::PauseAfter(int64_t collect_ns) const {
  const int64_t pause_ms = 200 * collect_ns / 1'000'000 * static_cast<int64_t>(count_.load());
  return std::clamp(pause_ms, int64_t{kInterval.count()}, int64_t{kIntervalMax.count()});
}

bool CacheFeed::Watch(const http::ExchangePtr& exchange, const Tenant* tenant, std::string salt) {
  auto watcher = std::make_shared<Watcher>();
  watcher->exchange = exchange;
  watcher->tenant = tenant;
  watcher->salt = std::move(salt);
  {
    std::lock_guard lock(mutex_);
    const auto own = std::count_if(watchers_.begin(), watchers_.end(),
                                   [&](const auto& other) { return other->tenant == tenant; });
    const bool shared = service_->tenants().count() > 1;
    if (watchers_.size() >= kWatchersMax) return false;
    if (shared && static_cast<size_t>(own) >= kTenantWatchersMax) return false;
    watchers_.push_back(watcher);
    count_ = watchers_.size();
  }
  exchange->StartStream({});
  exchange->OnClose([this, watcher] {
    std::lock_guard lock(mutex_);
    std::erase(watchers_, watcher);
    count_ = watchers_.size();
  });
  watcher->scheduled = true;
  exchange->Post([this, watcher] { Push(watcher); });
  return true;
}

void CacheFeed::Wake() {
  if (count_ == 0) return;
  std::lock_guard lock(mutex_);
  for (const auto& watcher : watchers_) Schedule(watcher);
}

void CacheFeed::Schedule(const std::shared_ptr<Watcher>& watcher) {
  if (watcher->scheduled.exchange(true)) return;
  const std::chrono::milliseconds pause(watcher->pause_ms.load());
  watcher->exchange->After(pause, [this, watcher] { Push(watcher); });
}

// Server thread -> engine thread (collect) -> server thread (format, send).
void CacheFeed::Push(const std::shared_ptr<Watcher>& watcher) {
  if (watcher->exchange->pending_bytes() > kPendingBytesMax) {
    watcher->scheduled = false;
    return Schedule(watcher);
  }
  ops::CollectView(service_, *watcher->tenant, watcher->salt, ops::kViewNodesMax,
                   [this, watcher](ops::CacheView view) {
                     auto shared = std::make_shared<ops::CacheView>(std::move(view));
                     watcher->pause_ms = PauseAfter(shared->collect_ns);
                     watcher->scheduled = false;
                     watcher->exchange->Post([this, watcher, shared] {
                       watcher->exchange->Send(
                           "event: cache\ndata: " +
                           ops::FormatView(service_, *watcher->tenant, *shared, &watcher->seen) +
                           "\n\n");
                     });
                   });
}

void CacheFeed::Close() {
  std::vector<std::shared_ptr<Watcher>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(watchers_);
    count_ = 0;
  }
  for (const auto& watcher : all) watcher->exchange->End();
}

}  // namespace reprise::api
