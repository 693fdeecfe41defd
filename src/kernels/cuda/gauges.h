// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kernels/bench/gauges.h"

// kernels/bench/gauges.h of a GPU. REQUIRES: the backend is a CudaBackend.
namespace reprise::cuda {

Ceilings CeilingsOf(Backend& backend, DType weights);
std::unique_ptr<Stopwatch> MakeStopwatch(Backend& backend);

}  // namespace reprise::cuda
