// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "picture/pixels.h"

namespace reprise {

enum class ResizeFilter : uint8_t { kBicubic, kBilinear };  // bicubic: a = -0.5

// The picture at another size, with antialiasing where it shrinks, columns
// first, each pass rounded to 8 bits. Weights are integers of 16 bits, so the result is the same
// everywhere: to the last bit what torchvision makes of tensors of bytes, which is what
// Transformers' processors use.
// Costs: O(width * height) for each pass, about 10 ns a pixel.
Pixels Resize(const Pixels& pixels, int width, int height,
              ResizeFilter filter = ResizeFilter::kBicubic);

}  // namespace reprise
