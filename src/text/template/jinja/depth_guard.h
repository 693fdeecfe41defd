// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "text/template/python/budget.h"

namespace reprise::jinja {

// Counts how deeply the interpreter has called itself, and pays for the node it is about to visit.
class DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(*depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

  Status Enter(Budget* budget) const {
    if (depth_ <= budget->depth_max()) return budget->Spend(1);
    return ResourceExhausted("macros call each other more deeply than is allowed");
  }

 private:
  int& depth_;
};

}  // namespace reprise::jinja
