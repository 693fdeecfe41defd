// SPDX-License-Identifier: Apache-2.0
#include "api/ops/report_log.h"

#include <utility>

namespace reprise::api {

void ReportLog::Add(const Tenant& tenant, std::string request_id, std::string report) {
  Entry entry;
  entry.request_id = std::move(request_id);
  entry.time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  entry.report = std::move(report);
  std::lock_guard lock(mutex_);
  std::deque<Entry>& own = entries_[tenant.name];
  own.push_back(std::move(entry));
  if (own.size() > kPerTenantMax) own.pop_front();
}

std::vector<ReportLog::Entry> ReportLog::Last(const Tenant& tenant) const {
  std::lock_guard lock(mutex_);
  const auto own = entries_.find(tenant.name);
  if (own == entries_.end()) return {};
  return {own->second.begin(), own->second.end()};
}

}  // namespace reprise::api
