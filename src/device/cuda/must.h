// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

namespace reprise {

// After a kernel or a copy has gone wrong nothing on the device can be trusted, and no answer may
// come of it: the process ends.
void Must(cudaError_t error, const char* what);

}  // namespace reprise
