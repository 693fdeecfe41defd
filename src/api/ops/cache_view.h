// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/ops/report_log.h"
#include "api/service.h"

namespace reprise::api::ops {

// What one tenant may see of the cache: its own part of the tree with its text, its own reports;
// numbers of the whole server only for an admin. All of one moment: the way that is lit is that of
// the newest report.
struct CacheView {
  EngineStats stats;
  ReportLog::Log reports;
  std::vector<TreeNodeView> nodes;
  bool truncated = false;
  int64_t collect_ns = 0;  // of the engine's time
};

// Nodes of the tree in one answer.
inline constexpr size_t kViewNodesMax = 2048;

// Asks the engine thread; `done` is called there, soon. The way of the tenant's last request is
// lit.
void CollectView(Service* service, const Tenant& tenant, const std::string& salt, size_t nodes_max,
                 std::function<void(CacheView)> done);

// What a watcher has seen, to leave out what it knows: the tree and the reports are long and seldom
// change while tokens are generated.
struct SeenView {
  uint64_t tree = 0;       // a hash
  std::string request_id;  // of the newest report
};

// With `seen`: without a "tree" or "reports" that are the same as those; it then stands for `view`.
std::string FormatView(Service* service, const Tenant& tenant, const CacheView& view,
                       SeenView* seen = nullptr);

}  // namespace reprise::api::ops
