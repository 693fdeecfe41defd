// SPDX-License-Identifier: Apache-2.0
#include "picture/patches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace reprise {
namespace {

// To the nearest integer, halves to even (Python's round).
int64_t RoundHalfEven(double x) {
  const double floor = std::floor(x);
  const double rest = x - floor;
  const auto below = static_cast<int64_t>(floor);
  if (rest != 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 == 0 ? below : below + 1;
}

// The largest size of that shape (a side that would vanish is one token long) with so many tokens.
PictureSize SizeOfTokens(const PictureSize& size, const PatchRules& rules) {
  const double width = size.width, height = size.height;
  const int side = rules.patch * rules.merge;
  const double wanted =
      double(int64_t{rules.tokens_max} * rules.merge * rules.merge) * (rules.patch * rules.patch);
  const double factor = std::sqrt(wanted / (height * width));
  int h = static_cast<int>(std::floor(factor * height / side)) * side;
  int w = static_cast<int>(std::floor(factor * width / side)) * side;
  const int most = rules.tokens_max * side;
  if (h == 0) {
    h = side;
    w = std::min(static_cast<int>(std::floor(width / height)) * side, most);
  } else if (w == 0) {
    w = side;
    h = std::min(static_cast<int>(std::floor(height / width)) * side, most);
  }
  return {w, h};
}

}  // namespace

std::string PatchRules::Describe() const {
  const std::string size = fit == PictureFit::kSquare ? fmt::format("side {}", side)
                           : fit == PictureFit::kTokens
                               ? fmt::format("tokens {}", tokens_max)
                               : fmt::format("pixels {}..{}", pixels_min, pixels_max);
  return fmt::format("patch {} frames {} merge {} {} mean {} {} {} deviation {} {} {}{}", patch,
                     frames, merge, size, mean[0], mean[1], mean[2], deviation[0], deviation[1],
                     deviation[2], filter == ResizeFilter::kBilinear ? " bilinear" : "");
}

Result<PictureSize> PatchedSize(const PictureSize& size, const PatchRules& rules) {
  if (rules.fit == PictureFit::kSquare) return PictureSize{rules.side, rules.side};
  const double width = size.width, height = size.height;
  if (std::max(width, height) / std::min(width, height) > 200) {
    return InvalidArgument(
        fmt::format("the picture has {} x {} pixels; one side may be 200 times the other at most",
                    size.width, size.height));
  }
  if (rules.fit == PictureFit::kTokens) return SizeOfTokens(size, rules);
  const double factor = rules.patch * rules.merge;
  int64_t h = RoundHalfEven(height / factor) * int64_t(factor);
  int64_t w = RoundHalfEven(width / factor) * int64_t(factor);
  if (h * w > rules.pixels_max) {
    const double beta = std::sqrt(height * width / double(rules.pixels_max));
    h = std::max(int64_t(factor), int64_t(std::floor(height / beta / factor)) * int64_t(factor));
    w = std::max(int64_t(factor), int64_t(std::floor(width / beta / factor)) * int64_t(factor));
  } else if (h * w < rules.pixels_min) {
    const double beta = std::sqrt(double(rules.pixels_min) / (height * width));
    h = int64_t(std::ceil(height * beta / factor)) * int64_t(factor);
    w = int64_t(std::ceil(width * beta / factor)) * int64_t(factor);
  }
  return PictureSize{static_cast<int>(w), static_cast<int>(h)};
}

PatchPlace PlaceOfPatch(int64_t index, int columns, const PatchRules& rules) {
  const int64_t of_token = int64_t{rules.merge} * rules.merge;
  const int64_t token = index / of_token, inside = index % of_token;
  const int64_t tokens = columns / rules.merge;  // of a row
  return {static_cast<int>(token / tokens * rules.merge + inside / rules.merge),
          static_cast<int>(token % tokens * rules.merge + inside % rules.merge)};
}

std::vector<float> MakePatches(const Pixels& pixels, const PatchRules& rules, int64_t begin,
                               int64_t end) {
  const int side = rules.patch;
  CHECK(pixels.width % (side * rules.merge) == 0 && pixels.height % (side * rules.merge) == 0);
  // (x - 255 mean) / (255 deviation), rounded as 32-bit floats after every operation.
  std::array<std::array<float, 256>, 3> values;
  for (size_t c = 0; c < 3; ++c) {
    const float mean = rules.mean[c] * 255.0f, deviation = rules.deviation[c] * 255.0f;
    for (size_t x = 0; x < 256; ++x) {
      const float distance = static_cast<float>(x) - mean;
      values[c][x] = distance / deviation;
    }
  }
  std::vector<float> patches;
  patches.reserve(size_t(end - begin) * 3 * size_t(rules.frames * side * side));
  for (int64_t index = begin; index < end; ++index) {
    const PatchPlace place = PlaceOfPatch(index, pixels.width / side, rules);
    const auto width = size_t(pixels.width);
    const size_t corner = size_t(place.row * side) * width + size_t(place.column * side);
    for (size_t c = 0; c < 3; ++c) {
      for (int frame = 0; frame < rules.frames; ++frame) {
        for (int y = 0; y < side; ++y) {
          const uint8_t* x = pixels.rgb.data() + (corner + size_t(y) * width) * 3 + c;
          for (int i = 0; i < side; ++i) patches.push_back(values[c][x[i * 3]]);
        }
      }
    }
  }
  return patches;
}

}  // namespace reprise
