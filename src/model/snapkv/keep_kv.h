// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "base/status.h"
#include "kernels/op_context.h"
#include "state/batch.h"
#include "state/spec.h"

namespace reprise {

// Moves the rows of a sequence's K/V that stay, layer by layer; `spec` is the model's, the layout
// of `memory` is made from it. Fails with kResourceExhausted, with nothing done, if a device has
// no memory for the lists. REQUIRES: the backend has the ops (Backend::keeps).
Status KeepKv(std::span<const OpContext> devices, const StateSpec& spec, const StateMemory& memory,
              const KeptKv& kept);

}  // namespace reprise
