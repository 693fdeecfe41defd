// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/joined/riders.h"
#include "kernels/reference/math.h"

namespace reprise::cuda {

// Rare beside the other one, so it stays out of the way.
inline __device__ __noinline__ float GeluOf(float x) { return reference::Gelu(x); }

// What a gate lets through. REQUIRES: IsGate(op).
__device__ __forceinline__ float Gated(OutputOp op, float gate, float up) {
  return (op == OutputOp::kSwiGlu ? reference::Silu(gate) : GeluOf(gate)) * up;
}

}  // namespace reprise::cuda
