// SPDX-License-Identifier: Apache-2.0
#include "picture/decode.h"

#include <string>
#include <utility>

#include "picture/formats.h"
#include "picture/orientation.h"

namespace reprise {
namespace {

using namespace std::string_view_literals;

struct Format {
  Result<PictureSize> (*size)(std::string_view);
  Result<Pixels> (*decode)(std::string_view, const PictureLimits&, std::string*);
};

Result<Format> FindFormat(std::string_view file) {
  if (file.starts_with("\x89PNG\r\n\x1A\n"sv)) return Format{ReadPngSize, DecodePng};
  if (file.starts_with("\xFF\xD8\xFF"sv)) return Format{ReadJpegSize, DecodeJpeg};
  if (file.starts_with("RIFF") && file.size() >= 12 && file.substr(8, 4) == "WEBP") {
    return Format{ReadWebpSize, DecodeWebp};
  }
  if (file.starts_with("GIF87a") || file.starts_with("GIF89a")) {
    return Format{ReadGifSize, DecodeGif};
  }
  return InvalidArgument("this is no picture in PNG, JPEG, WebP or GIF");
}

}  // namespace

Status CheckPictureSize(const PictureSize& size, const PictureLimits& limits) {
  if (size.width <= 0 || size.height <= 0) return InvalidArgument("the picture is empty");
  const int64_t pixels = int64_t{size.width} * size.height;
  if (size.width <= limits.side_max && size.height <= limits.side_max &&
      pixels <= limits.pixels_max) {
    return OkStatus();
  }
  return InvalidArgument("the picture has " + std::to_string(size.width) + " x " +
                         std::to_string(size.height) + " pixels; at most " +
                         std::to_string(limits.pixels_max) + ", and " +
                         std::to_string(limits.side_max) + " on a side, are taken");
}

Result<PictureSize> ReadPictureSize(std::string_view file, const PictureLimits& limits) {
  REPRISE_ASSIGN(const Format format, FindFormat(file));
  REPRISE_ASSIGN(const PictureSize size, format.size(file));
  REPRISE_TRY(CheckPictureSize(size, limits));
  return size;
}

Result<Pixels> DecodePicture(std::string_view file, const PictureLimits& limits) {
  REPRISE_ASSIGN(const Format format, FindFormat(file));
  std::string exif;
  REPRISE_ASSIGN(Pixels pixels, format.decode(file, limits, &exif));
  return Upright(std::move(pixels), ExifOrientation(exif));
}

}  // namespace reprise
