// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "picture/decode.h"
#include "picture/pixels.h"
#include "picture/resize.h"

namespace reprise {

// How a picture gets its size.
//  kPixels  near its own, with so many pixels at least and at most (Qwen)
//  kSquare  `side` on both sides, whatever its shape (Gemma 3)
//  kTokens  its shape, as large as `tokens_max` tokens allow (Gemma 4)
enum class PictureFit : uint8_t { kPixels, kSquare, kTokens };

// How a model wants its pictures (preprocessor_config.json): sides that are multiples of patch *
// merge, values (x / 255 - mean) / deviation.
struct PatchRules {
  PictureFit fit = PictureFit::kPixels;
  int patch = 16;
  int frames = 2;  // a picture is a film of so many equal frames
  int merge = 2;   // merge x merge patches become one token
  int64_t pixels_min = 65536;
  int64_t pixels_max = 16777216;
  int side = 896;        // kSquare
  int tokens_max = 280;  // kTokens
  ResizeFilter filter = ResizeFilter::kBicubic;
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f};
  std::array<float, 3> deviation = {0.5f, 0.5f, 0.5f};

  // All of it, for names: what is computed of pixels depends on it.
  std::string Describe() const;
};

// The size that a picture of that size is given. Where that depends on its own, fails with
// kInvalidArgument for one that is more than 200 times as long as it is wide.
Result<PictureSize> PatchedSize(const PictureSize& size, const PatchRules& rules);

// Where a patch lies, counted in patches: merge x merge of them that become one token follow one
// another, tokens row by row. `columns`: of the picture.
struct PatchPlace {
  int row = 0;
  int column = 0;
};
PatchPlace PlaceOfPatch(int64_t index, int columns, const PatchRules& rules);

// The values of patches [begin, end) of a picture of such a size.
// [end - begin, 3 * frames * patch * patch]
std::vector<float> MakePatches(const Pixels& pixels, const PatchRules& rules, int64_t begin,
                               int64_t end);

}  // namespace reprise
