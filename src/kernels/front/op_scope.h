// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kernels/backend.h"
#include "kernels/op_context.h"

namespace reprise {

// The time of one op, as an observer of the context sees it.
class OpScope {
 public:
  OpScope(const OpContext& context, std::string_view op)
      : observer_(context.observer), runs_(!context.scratch->refused()) {
    if (observer_ != nullptr) observer_->Begin(op);
  }
  ~OpScope() {
    if (observer_ != nullptr) observer_->End();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // False: there was no memory for its operands, or for those of an op in front of it.
  bool runs() const { return runs_; }

 private:
  OpObserver* const observer_;
  const bool runs_;
};

inline bool SameShape(const ConstRows& a, const ConstRows& b) {
  return a.rows == b.rows && a.cols == b.cols;
}

}  // namespace reprise
