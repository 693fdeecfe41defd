// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/service.h"

namespace reprise::api::ops {

// What one tenant may see of the cache: its own part of the tree with its text, its own reports;
// numbers of the whole server only for an admin.
struct CacheView {
  EngineStats stats;
  std::vector<TreeNodeView> nodes;
  bool truncated = false;
};

// Nodes of the tree in one answer.
inline constexpr size_t kViewNodesMax = 512;

// Asks the engine thread; `done` is called there, soon.
void CollectView(Service* service, const std::string& salt, size_t nodes_max,
                 std::function<void(CacheView)> done);

std::string FormatView(Service* service, const Tenant& tenant, const CacheView& view);

}  // namespace reprise::api::ops
