// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "picture/pixels.h"

namespace reprise {

// Files of pictures become pixels. Whoever sends one is not trusted: its size is read and counted
// before anything is allocated, and the memory of a decoder is a small multiple of the pixels.
//
// What a file says is done as Pillow does it, whose pixels models were trained with: samples of 16
// bits are cut to 8, palettes and grey become red, green, blue, transparency is left out (what lies
// behind it is shown), and a picture lies as its EXIF orientation says. Of a GIF that moves it is
// the first frame.
struct PictureLimits {
  int side_max = 16384;
  int64_t pixels_max = int64_t{50} << 20;
};

struct PictureSize {
  int width = 0;
  int height = 0;
};

// The size in the file's header (before it is turned). Fails as DecodePicture does.
Result<PictureSize> ReadPictureSize(std::string_view file, const PictureLimits& limits = {});

// PNG, JPEG, WebP or GIF, by its first bytes. Fails with kInvalidArgument and a sentence: another
// format, more pixels than the limits allow, damaged, or cut off.
Result<Pixels> DecodePicture(std::string_view file, const PictureLimits& limits = {});

}  // namespace reprise
