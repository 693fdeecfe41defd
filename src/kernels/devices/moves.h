// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/expert_ops.h"
#include "kernels/ops.h"

// What goes from one device to another (kernels/devices/devices.h): copies, which wait for what
// `from` was asked for before.
namespace reprise {

// x as rows of `to`, in its scratch.
Rows Moved(const OpContext& from, const ConstRows& x, const OpContext& to);
Routing Moved(const OpContext& from, const Routing& routing, const OpContext& to);
RopeTable Moved(const OpContext& from, const RopeTable& table, int64_t rows, const OpContext& to);
// The same into rows that are there.
void MoveRows(const OpContext& from, const ConstRows& x, const OpContext& to, const Rows& y);

}  // namespace reprise
