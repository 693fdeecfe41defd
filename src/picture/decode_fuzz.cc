// SPDX-License-Identifier: Apache-2.0
// Files of pictures from anyone: a sentence or pixels, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "picture/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const reprise::PictureLimits limits{.side_max = 512, .pixels_max = 1 << 16};
  const auto head = reprise::ReadPictureSize(file, limits);
  const auto pixels = reprise::DecodePicture(file, limits);
  if (!pixels.ok()) {
    CHECK(!pixels.status().message().empty());
    return 0;
  }
  const int64_t count = int64_t{pixels->width} * pixels->height;
  CHECK(head.ok() && count == int64_t{head->width} * head->height);
  CHECK(count <= limits.pixels_max && pixels->rgb.size() == size_t(count) * 3);
  return 0;
}
