// SPDX-License-Identifier: Apache-2.0
// Any bytes as the head of a record, sealed or not: facts or an error, and facts whose layout has
// the size that they say. The first byte says whether the rest is sealed again first, so that the
// reader behind the checksum is reached, too.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tier/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  if (size < 2) return 0;
  std::vector<std::byte> head(size - 1);
  std::memcpy(head.data(), data + 1, size - 1);
  const auto preamble = DecodePreamble(head);
  if (preamble.ok() && (data[0] & 1) != 0 && head.size() >= preamble->head_bytes()) {
    const auto facts = std::span(head).subspan(kRecordFixedBytes, preamble->facts_bytes);
    const Seal::Tag tag =
        Seal(StateKey(), preamble->salt).Close(0, facts, std::span(head).first(kRecordFixedBytes));
    std::memcpy(head.data() + kRecordFixedBytes + facts.size(), tag.data(), tag.size());
  }
  const auto facts = DecodeHead(head, StateKey());
  if (!facts.ok()) return 0;
  constexpr uint64_t kLayoutBytesMax = uint64_t{1} << 40;  // else the list of parts alone is long
  if (RecordBytes(*facts) < kLayoutBytesMax) {
    CHECK(RecordLayout(*facts).file_bytes() == RecordBytes(*facts));
  }
  const auto again = DecodeHead(EncodeHead(*facts, StateKey(), preamble->salt), StateKey());
  CHECK(again.ok() && *again == *facts);
  return 0;
}
