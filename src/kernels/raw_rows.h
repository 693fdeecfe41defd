// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/raw.h"
#include "kernels/rows.h"

// For kernels/ and tests only: the addresses behind rows of activations.
namespace reprise {

inline float* RowOf(const Rows& x, int64_t row) { return Raw(x.data) + row * x.stride; }
inline const float* RowOf(const ConstRows& x, int64_t row) { return Raw(x.data) + row * x.stride; }

}  // namespace reprise
