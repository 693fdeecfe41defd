// SPDX-License-Identifier: Apache-2.0
#include "api/ops/report_log.h"

#include <utility>

namespace reprise::api {

void ReportLog::Add(const Tenant& tenant, std::string request_id, std::string report,
                    std::vector<TokenId> prompt) {
  Entry entry;
  entry.request_id = std::move(request_id);
  entry.time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  entry.report = std::move(report);
  auto shared = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  std::lock_guard lock(mutex_);
  Log& own = logs_[tenant.name];
  own.entries.push_back(std::move(entry));
  if (own.entries.size() > kPerTenantMax) own.entries.pop_front();
  own.prompt = std::move(shared);
}

ReportLog::Log ReportLog::Of(const Tenant& tenant) const {
  std::lock_guard lock(mutex_);
  const auto own = logs_.find(tenant.name);
  return own == logs_.end() ? Log() : own->second;
}

}  // namespace reprise::api
