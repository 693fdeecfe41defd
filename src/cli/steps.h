// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"
#include "sched/scheduler.h"

namespace reprise::cli {

// How steps are planned on a device: rows of a step and the promised gap between two tokens of a
// stream. `parallel`: sequences at the same time. `gap_ms`: 0: the device's default.
SchedulerOptions StepsFor(Backend& backend, int parallel, int gap_ms);

}  // namespace reprise::cli
