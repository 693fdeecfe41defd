// SPDX-License-Identifier: Apache-2.0
// Any bytes as the index of a folder, sealed or not: records or an error, and records that make the
// same index again. The first byte says whether the rest is sealed again first, so that the reader
// behind the checksum is reached, too.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tier/folder/folder_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  if (size < 2) return 0;
  constexpr size_t kSaltAt = 16, kHead = kSaltAt + Seal::kSaltBytes;
  std::vector<std::byte> bytes(size - 1);
  std::memcpy(bytes.data(), data + 1, size - 1);
  if ((data[0] & 1) != 0 && bytes.size() >= kHead + Seal::kTagBytes) {
    Seal::Salt salt;
    std::memcpy(salt.data(), bytes.data() + kSaltAt, salt.size());
    const auto body = std::span(bytes).subspan(kHead, bytes.size() - kHead - Seal::kTagBytes);
    const Seal::Tag tag = Seal(StateKey(), salt).Close(0, body, std::span(bytes).first(kHead));
    std::memcpy(body.data() + body.size(), tag.data(), tag.size());
  }
  const auto records = DecodeIndex(bytes, StateKey());
  if (!records.ok()) return 0;
  std::vector<std::byte> encoded = EncodeIndex(*records, StateKey(), Seal::Salt{});
  const auto again = DecodeIndex(encoded, StateKey());
  CHECK(again.ok() && again->size() <= records->size());
  size_t at = 0;  // those that take too much room are left out
  for (const RecordHome::Listed& one : *again) {
    const auto same = [&](const RecordHome::Listed& other) {
      return one.name == other.name && one.used_ms == other.used_ms && one.bytes == other.bytes &&
             one.facts == other.facts;
    };
    while (at < records->size() && !same((*records)[at])) ++at;
    CHECK(at++ < records->size());
  }
  return 0;
}
