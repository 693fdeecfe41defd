// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "picture/decode.h"

// One file each: what wraps the library of a format, or reads it. Both functions are for files that
// begin as the format does. (decode.h)
namespace reprise {

// Fails if the picture is empty or larger than the limits allow.
Status CheckPictureSize(const PictureSize& size, const PictureLimits& limits);

Result<PictureSize> ReadPngSize(std::string_view file);
Result<PictureSize> ReadJpegSize(std::string_view file);
Result<PictureSize> ReadWebpSize(std::string_view file);
Result<PictureSize> ReadGifSize(std::string_view file);

// `exif` gets the EXIF data, from its "II" or "MM" on, or stays empty.
Result<Pixels> DecodePng(std::string_view file, const PictureLimits& limits, std::string* exif);
Result<Pixels> DecodeJpeg(std::string_view file, const PictureLimits& limits, std::string* exif);
Result<Pixels> DecodeWebp(std::string_view file, const PictureLimits& limits, std::string* exif);
Result<Pixels> DecodeGif(std::string_view file, const PictureLimits& limits, std::string* exif);

}  // namespace reprise
