// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "picture/pixels.h"

namespace reprise {

// How a camera was held: 1 to 8 as EXIF numbers them; 1 (upright) where the data does not say.
int ExifOrientation(std::string_view exif);

// The picture upright.
Pixels Upright(Pixels pixels, int orientation);

}  // namespace reprise
