// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "picture/decode.h"
#include "picture/pixels.h"
#include "state/ids.h"

namespace reprise {

struct TowerCard;

// A picture as a prompt has it: pixels of the size that the tower wants, and the tokens that stand
// for them. A token is virtual: its name is the SHA-256 of tower, rules, size and pixels
// (state/virtual_tokens.h), so the same pixels from another file are the same tokens.
struct SeenPicture {
  Pixels pixels;
  int rows = 0;  // of tokens
  int columns = 0;
  TokenId first = 0;  // of rows * columns that follow one another
  // For rotary embedding they stand one behind another, as those of a text; else by row and column.
  bool in_line = false;

  int32_t tokens() const { return rows * columns; }
  // How far what follows stands behind its beginning, for rotary embedding.
  int32_t positions() const { return in_line ? tokens() : std::max(rows, columns); }
};

// From the bytes of a file. Fails with kInvalidArgument and a sentence if it cannot be looked at.
Result<std::shared_ptr<const SeenPicture>> SeePicture(const TowerCard& tower, std::string_view file,
                                                      const PictureLimits& limits = {});

}  // namespace reprise
