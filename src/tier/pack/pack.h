// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"

namespace reprise {

// Lossless compression of numbers: bytes of the same significance are put side by side (sign and
// exponent vary little, the rest is noise), then zstd.
//
//   width   bytes of a number: 2 (f16, bf16) or 4 (f32)

// Empty: that would not be shorter.
std::vector<std::byte> Pack(std::span<const std::byte> data, size_t width);
// Any bytes as `packed`. Fails unless they give exactly as many as `out` has.
Status Unpack(std::span<const std::byte> packed, size_t width, std::span<std::byte> out);

// The width that makes these bytes shorter, judged by a part of them.
size_t PackWidth(std::span<const std::byte> data);

struct Packed {
  uint8_t width = 0;  // 0: that would not be shorter
  std::vector<std::byte> bytes;
};
// By that width.
Packed PackAny(std::span<const std::byte> data);

}  // namespace reprise
