// SPDX-License-Identifier: Apache-2.0
#include "tier/pack/pack.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

constexpr int kLevel = 1;

// out[b * count + i] = data[i * width + b]; what is left over stays behind.
void Shuffle(std::span<const std::byte> data, size_t width, std::span<std::byte> out) {
  const size_t count = data.size() / width;
  for (size_t b = 0; b < width; ++b) {
    for (size_t i = 0; i < count; ++i) out[b * count + i] = data[i * width + b];
  }
  std::copy(data.begin() + static_cast<ptrdiff_t>(count * width), data.end(),
            out.begin() + static_cast<ptrdiff_t>(count * width));
}

void Unshuffle(std::span<const std::byte> data, size_t width, std::span<std::byte> out) {
  const size_t count = data.size() / width;
  for (size_t b = 0; b < width; ++b) {
    for (size_t i = 0; i < count; ++i) out[i * width + b] = data[b * count + i];
  }
  std::copy(data.begin() + static_cast<ptrdiff_t>(count * width), data.end(),
            out.begin() + static_cast<ptrdiff_t>(count * width));
}

}  // namespace

std::vector<std::byte> Pack(std::span<const std::byte> data, size_t width) {
  CHECK(width == 2 || width == 4);
  std::vector<std::byte> shuffled(data.size());
  Shuffle(data, width, shuffled);
  std::vector<std::byte> packed(data.size());
  const size_t bytes =
      ::ZSTD_compress(packed.data(), packed.size(), shuffled.data(), shuffled.size(), kLevel);
  if (::ZSTD_isError(bytes) != 0 || bytes >= data.size()) return {};
  packed.resize(bytes);
  return packed;
}

Status Unpack(std::span<const std::byte> packed, size_t width, std::span<std::byte> out) {
  if (width != 2 && width != 4) return DataLoss("a part is damaged: unknown width of its elements");
  std::vector<std::byte> shuffled(out.size());
  const size_t bytes =
      ::ZSTD_decompress(shuffled.data(), shuffled.size(), packed.data(), packed.size());
  if (::ZSTD_isError(bytes) != 0 || bytes != out.size()) {
    return DataLoss("a part is damaged: it does not decompress to its size");
  }
  Unshuffle(shuffled, width, out);
  return OkStatus();
}

size_t PackWidth(std::span<const std::byte> data) {
  const auto sample = data.first(std::min<size_t>(data.size(), size_t{64} << 10));
  const auto bytes = [&](size_t width) {
    const size_t packed = Pack(sample, width).size();
    return packed == 0 ? sample.size() : packed;
  };
  return bytes(4) < bytes(2) ? 4 : 2;
}

Packed PackAny(std::span<const std::byte> data) {
  const size_t width = PackWidth(data);
  std::vector<std::byte> bytes = Pack(data, width);
  if (bytes.empty()) return {};
  return {static_cast<uint8_t>(width), std::move(bytes)};
}

}  // namespace reprise
