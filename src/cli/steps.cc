// SPDX-License-Identifier: Apache-2.0
#include "cli/steps.h"

#include <algorithm>

#include "device/memory.h"

namespace reprise::cli {

SchedulerOptions StepsFor(Backend& backend, int parallel, int gap_ms) {
  const bool host = &backend.memory() == &HostMemory();
  SchedulerOptions steps;
  // Every stream has its row in every step, with room for prompts beside them.
  steps.rows_max = std::max(backend.step_rows(), parallel + 256);
  steps.gap_ms_max = gap_ms > 0 ? gap_ms : host ? 200 : 50;
  if (host) return steps;
  // A GPU's step hardly grows with a few hundred rows: the gap alone bounds what streams wait for.
  steps.slow_down_max = 0;
  steps.rows_alone = 512;
  steps.idle_rows_max = 1024;
  return steps;
}

}  // namespace reprise::cli
