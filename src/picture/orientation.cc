// SPDX-License-Identifier: Apache-2.0
#include "picture/orientation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reprise {
namespace {

// A TIFF file in small: numbers at offsets, in the byte order that its first letters say.
class Tiff {
 public:
  explicit Tiff(std::string_view data) : data_(data), little_(data.starts_with("II")) {}
  bool valid() const { return little_ || data_.starts_with("MM"); }
  // 0 where the data ends before.
  uint32_t Number(size_t at, size_t bytes) const {
    if (at > data_.size() || bytes > data_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t from = little_ ? bytes - 1 - i : i;
      value = value << 8 | static_cast<uint8_t>(data_[at + from]);
    }
    return value;
  }

 private:
  std::string_view data_;
  bool little_;
};

}  // namespace

int ExifOrientation(std::string_view exif) {
  constexpr uint32_t kOrientation = 0x0112, kShort = 3;
  constexpr size_t kEntryBytes = 12;
  const Tiff tiff(exif);
  if (!tiff.valid() || tiff.Number(2, 2) != 42) return 1;
  const size_t list = tiff.Number(4, 4);
  const size_t count = tiff.Number(list, 2);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = list + 2 + i * kEntryBytes;
    if (tiff.Number(entry, 2) != kOrientation) continue;
    const uint32_t value = tiff.Number(entry + 8, 2);
    const bool sound = tiff.Number(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return sound ? static_cast<int>(value) : 1;
  }
  return 1;
}

Pixels Upright(Pixels pixels, int orientation) {
  if (orientation <= 1 || orientation > 8) return pixels;
  const bool turned = orientation >= 5;  // rows become columns
  // In which direction rows and columns of the file are read.
  const bool last_row_first =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 6;
  const bool last_column_first =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Pixels upright;
  upright.width = turned ? pixels.height : pixels.width;
  upright.height = turned ? pixels.width : pixels.height;
  upright.rgb.resize(pixels.rgb.size());
  uint8_t* out = upright.rgb.data();
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x, out += 3) {
      const int row = turned ? x : y, column = turned ? y : x;
      const int from_row = last_row_first ? pixels.height - 1 - row : row;
      const int from_column = last_column_first ? pixels.width - 1 - column : column;
      const size_t from = (size_t(from_row) * size_t(pixels.width) + size_t(from_column)) * 3;
      std::memcpy(out, pixels.rgb.data() + from, 3);
    }
  }
  return upright;
}

}  // namespace reprise
