// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "picture/patches.h"
#include "weights/checkpoint.h"

namespace reprise {

// How pictures are prepared for a tower: what preprocessor_config.json (or processor_config.json)
// of a folder says, or the metadata of a GGUF file of a tower alone; what that leaves out is as in
// `rules`, which are those of the tower's kind. Fails if what it says is not supported.
Result<PatchRules> ReadPatchRules(const Checkpoint& checkpoint, const PatchRules& rules = {});

}  // namespace reprise
