// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/tenants.h"
#include "engine/request.h"

namespace reprise::api {

// The last reuse reports of each tenant, for /v1/cache.
//
// Thread safety: all methods from any thread.
class ReportLog {
 public:
  static constexpr size_t kPerTenantMax = 32;

  struct Entry {
    std::string request_id;
    int64_t time_ms = 0;  // since 1970
    std::string report;   // JSON
  };

  // What is kept of one tenant.
  struct Log {
    std::deque<Entry> entries;                           // newest last
    std::shared_ptr<const std::vector<TokenId>> prompt;  // of the newest; null: there is none
  };

  void Add(const Tenant& tenant, std::string request_id, std::string report,
           std::vector<TokenId> prompt);
  Log Of(const Tenant& tenant) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Log> logs_;  // by tenant; as many as keys
};

}  // namespace reprise::api
