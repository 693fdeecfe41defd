// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/reader.h"
#include "model/config/rope.h"

namespace reprise {

// Sections of interleaved multimodal RoPE, how many angles turn by time, row and column: four
// numbers, as GGUF files have them; fills rope->axes. Where nothing is said, a third each.
std::vector<int64_t> ReadRopeSections(ConfigReader* reader, RopeConfig* rope);

}  // namespace reprise
