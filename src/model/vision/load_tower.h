// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/op_context.h"
#include "model/vision/tower.h"
#include "weights/checkpoint.h"

namespace reprise {

// How pictures are prepared: preprocessor_config.json (or processor_config.json) of a folder; where
// there is neither, as Qwen3.5 is published. Fails if what it says is not supported.
Result<PatchRules> ReadPatchRules(const Checkpoint& checkpoint);

// The tower of a folder, or a GGUF file that is a tower alone (mmproj); null if a folder has none,
// or none that is known, or the device does not see. Fails if it is not as it should be.
Result<std::shared_ptr<const VisionTower>> LoadTower(const Checkpoint& checkpoint,
                                                     const OpContext& context);

}  // namespace reprise
