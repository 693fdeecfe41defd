// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace reprise {

// Loops over sequences ask for what they need of those that come so much later.
inline constexpr size_t kNear = 8;

}  // namespace reprise
