// SPDX-License-Identifier: Apache-2.0
// Any bytes as what Redis answers, in pieces of any size: replies or an error, never more memory
// than was allowed. The first byte says how large the pieces are.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tier/redis/resp.h"

namespace {

class Pieces : public reprise::ByteSource {
 public:
  Pieces(const uint8_t* data, size_t size, size_t piece)
      : data_(data), size_(size), piece_(piece) {}
  reprise::Result<size_t> ReadSome(std::span<std::byte> into) override {
    if (size_ == 0) return reprise::Internal("no more");
    CHECK(!into.empty());
    const size_t bytes = std::min({into.size(), size_, piece_});
    std::memcpy(into.data(), data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  const size_t piece_;
};

size_t BytesOf(const reprise::RespReply& reply) {
  size_t bytes = reply.text.size();
  for (const reprise::RespReply& item : reply.items) bytes += BytesOf(item);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  constexpr size_t kBytesMax = 4096;
  if (size == 0) return 0;
  Pieces source(data + 1, size - 1, size_t{1} + data[0] % 64);
  RespReader reader(&source);
  const bool bulks = data[0] >= 128;
  for (;;) {
    if (bulks) {
      const auto bytes = reader.BeginBulk();
      if (!bytes.ok()) return 0;
      if (!*bytes || **bytes > kBytesMax) continue;
      std::byte out[kBytesMax];
      if (!reader.Take(std::span(out).first(**bytes)).ok() || !reader.EndBulk().ok()) return 0;
      continue;
    }
    const auto reply = reader.Read(kBytesMax);
    if (!reply.ok()) return 0;
    CHECK(BytesOf(*reply) <= kBytesMax);
  }
}
