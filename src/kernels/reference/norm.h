// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Entries of KernelTable of the same names.
namespace reprise::reference {

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y);
void L2Norm(const float* x, float eps, float scale, int64_t n, float* y);
void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
               float* y);

// Ops of activation_ops.h on one row; no instruction set has an entry of its own for them.
void MatchMagnitude(const float* x, const float* like, float least, int64_t n, float* y);
void CutBelow(const float* x, float factor, int64_t n, float* y);

}  // namespace reprise::reference
