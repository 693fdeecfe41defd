// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

namespace reprise {

// After a kernel or a copy has gone wrong nothing on the device can be trusted, and no answer may
// come of it: the process ends.
void Must(cudaError_t error, const char* what);

// A thread uses one GPU at a time, the first of the machine unless it says otherwise: everything
// that is asked of the runtime without a stream goes there, and kernels and memory of one GPU are
// none of another. So whoever begins to work with a GPU says which, on whatever thread it is.
// Costs nothing where the thread used it last.
void UseGpu(int ordinal);
// What the thread said last; -1: nothing.
int UsedGpu();

}  // namespace reprise
