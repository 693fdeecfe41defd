// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

namespace reprise {

// A backend that keeps what steps were, to run it again (graphs of launches). When weights or
// scratch memory are given back, that has to go as well: it has their addresses.
class StepKeeper {
 public:
  virtual ~StepKeeper() = default;
  virtual void ForgetSteps() = 0;
};

inline void ForgetSteps(Backend& backend) {
  if (auto* const keeper = dynamic_cast<StepKeeper*>(&backend)) keeper->ForgetSteps();
}

}  // namespace reprise
