// SPDX-License-Identifier: Apache-2.0
#include "weights/format/stored_tensor.h"

#include <cstring>

#include "base/check.h"
#include "base/json.h"
#include "tensor/blocks.h"

namespace reprise {

void ReadBlocks(const StoredTensor& tensor, int64_t row, int64_t begin, int64_t count,
                std::byte* out) {
  const int64_t at = row * tensor.shape.cols() + begin;
  if (!tensor.split()) {
    std::memcpy(out, tensor.bytes.data() + RowBytes(tensor.dtype, at),
                RowBytes(tensor.dtype, count));
    return;
  }
  CHECK(tensor.dtype == DType::kMXFP4);
  constexpr int kValues = 32;
  const auto* levels = reinterpret_cast<const uint8_t*>(tensor.bytes.data()) + at / 2;
  const auto* scales = reinterpret_cast<const uint8_t*>(tensor.scales.data()) + at / kValues;
  auto* block = reinterpret_cast<BlockMXFP4*>(out);
  for (int64_t done = 0; done < count; done += kValues, levels += kValues / 2, ++block) {
    block->e = *scales++;
    for (int j = 0; j < kValues / 2; ++j) {  // values j and j + 16
      const uint8_t low = levels[j / 2], high = levels[8 + j / 2];
      const int shift = j % 2 * 4;
      block->qs[j] = uint8_t((low >> shift & 15) | (high >> shift & 15) << 4);
    }
  }
}

std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 96;
  std::string text;
  AppendJsonString(name.substr(0, kShown), &text);
  if (name.size() > kShown) text += "...";
  return text;
}

}  // namespace reprise
