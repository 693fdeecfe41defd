// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include <algorithm>
#include <string>

#include "picture/formats.h"

namespace reprise {
namespace {

const uint8_t* BytesOf(std::string_view file) {
  return reinterpret_cast<const uint8_t*>(file.data());
}

Result<WebPBitstreamFeatures> ReadFeatures(std::string_view file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(BytesOf(file), file.size(), &features) != VP8_STATUS_OK) {
    return InvalidArgument("the WebP picture cannot be read: it has no header");
  }
  if (features.has_animation != 0) {
    return InvalidArgument("WebP pictures that move are not supported; send one that does not");
  }
  return features;
}

uint32_t LittleEndian(std::string_view file, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i > 0; --i) value = value << 8 | static_cast<uint8_t>(file[at + i - 1]);
  return value;
}

// The chunk EXIF of the container; empty if there is none.
std::string_view FindExif(std::string_view file) {
  constexpr size_t kFirstChunk = 12, kHeaderBytes = 8;
  for (size_t at = kFirstChunk; at + kHeaderBytes <= file.size();) {
    const size_t size = LittleEndian(file, at + 4);
    const size_t left = file.size() - at - kHeaderBytes;
    if (size > left) return {};
    if (file.substr(at, 4) == "EXIF") {
      std::string_view exif = file.substr(at + kHeaderBytes, size);
      if (exif.starts_with(std::string_view("Exif\0\0", 6))) exif.remove_prefix(6);
      return exif;
    }
    at += kHeaderBytes + size + size % 2;
  }
  return {};
}

}  // namespace

Result<PictureSize> ReadWebpSize(std::string_view file) {
  REPRISE_ASSIGN(const WebPBitstreamFeatures features, ReadFeatures(file));
  return PictureSize{features.width, features.height};
}

Result<Pixels> DecodeWebp(std::string_view file, const PictureLimits& limits, std::string* exif) {
  REPRISE_ASSIGN(const PictureSize size, ReadWebpSize(file));
  REPRISE_TRY(CheckPictureSize(size, limits));
  Pixels pixels{size.width, size.height, {}};
  const size_t row_bytes = static_cast<size_t>(size.width) * 3;
  pixels.rgb.resize(row_bytes * static_cast<size_t>(size.height));
  if (WebPDecodeRGBInto(BytesOf(file), file.size(), pixels.rgb.data(), pixels.rgb.size(),
                        static_cast<int>(row_bytes)) == nullptr) {
    return InvalidArgument("the WebP picture cannot be read: it is damaged or cut off");
  }
  *exif = FindExif(file);
  return pixels;
}

}  // namespace reprise
