// SPDX-License-Identifier: Apache-2.0
// Files of pictures from anyone: a sentence or pixels, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#ifdef REPRISE_LIBFUZZER
#include <zlib.h>
#endif

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

#ifdef REPRISE_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Most files whose chunks are those of PNG get the sums that belong to them: otherwise little of
// what is behind a sum is ever read.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 == 0 || size < 8 || data[0] != 0x89 || data[1] != 'P') return size;
  const auto number = [&](size_t at) {
    return size_t{data[at]} << 24 | size_t{data[at + 1]} << 16 | size_t{data[at + 2]} << 8 |
           data[at + 3];
  };
  for (size_t at = 8; at + 12 <= size && number(at) <= size - at - 12; at += 12 + number(at)) {
    const size_t behind = at + 8 + number(at);
    const uLong sum = crc32(0, data + at + 4, static_cast<uInt>(number(at) + 4));
    for (size_t i = 0; i < 4; ++i) data[behind + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
  }
  return size;
}
#endif
