// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoders/dense_decoder.h"

namespace reprise {

// The text part of Qwen3-VL, dense or with experts: Qwen3 whose angles follow from time, row and
// column, and whose first layers get further vectors of pictures. REQUIRES: config was read by
// `reader`; its angles' axes are filled here.
DenseTraits MakeSeeingTraits(ConfigReader* reader, std::string_view gguf_architecture,
                             DecoderConfig* config);
// DenseTraits::picture_layers.
int ReadPictureLayers(ConfigReader* reader);

}  // namespace reprise
