// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/op_context.h"
#include "model/vision/tower.h"
#include "model/vision/tower_rules.h"
#include "weights/checkpoint.h"

namespace reprise {

// The tower of a folder, or a GGUF file that is a tower alone (mmproj); null if a folder has none,
// or none that is known, or the device does not see. Fails if it is not as it should be.
Result<std::shared_ptr<const VisionTower>> LoadTower(const Checkpoint& checkpoint,
                                                     const OpContext& context);

}  // namespace reprise
