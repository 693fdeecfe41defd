// SPDX-License-Identifier: Apache-2.0
// Any bytes as the head of a record, packed or not, sealed or not: facts or an error, and facts
// whose layout has the size that they say. The first byte says whether the rest is sealed again
// first, so that the reader behind the checksum is reached, too. What follows the head of a packed
// record are its parts: state or an error.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tier/pack/pack.h"
#include "tier/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  if (size < 2) return 0;
  std::vector<std::byte> head(size - 1);
  std::memcpy(head.data(), data + 1, size - 1);
  const auto preamble = DecodePreamble(head);
  if (preamble.ok() && (data[0] & 1) != 0 && head.size() >= preamble->head_bytes()) {
    const auto facts = std::span(head).subspan(kRecordFixedBytes, preamble->sealed_bytes);
    const Seal::Tag tag =
        Seal(StateKey(), preamble->salt).Close(0, facts, std::span(head).first(kRecordFixedBytes));
    std::memcpy(head.data() + kRecordFixedBytes + facts.size(), tag.data(), tag.size());
  }
  std::vector<PackedPart> packed;
  const auto facts = DecodeHead(head, StateKey(), nullptr, &packed);
  if (!facts.ok()) return 0;
  CHECK(packed.empty() != preamble->packed);
  constexpr uint64_t kLayoutBytesMax = uint64_t{1} << 40;  // else the list of parts alone is long
  if (RecordBytes(*facts) < kLayoutBytesMax) {
    CHECK(RecordLayout(*facts).file_bytes() == RecordBytes(*facts));
  }
  std::vector<PackedPart> list;
  const auto same = EncodeHead(*facts, StateKey(), preamble->salt, packed);
  const auto again = DecodeHead(same, StateKey(), nullptr, &list);
  CHECK(again.ok() && *again == *facts && list == packed);
  if (packed.empty()) return 0;
  const RecordLayout layout(*facts, packed);
  CHECK(layout.file_bytes() <= RecordBytesMax(*facts));
  for (const RecordLayout::Part& part : layout.parts()) {
    if (part.offset + part.stored.bytes > head.size()) break;
    if (part.stored.width == 0) continue;
    CHECK(part.bytes <= kPackBytesMax);
    std::vector<std::byte> out(part.bytes);
    (void)Unpack(std::span(head).subspan(part.offset, part.stored.bytes), part.stored.width, out);
  }
  return 0;
}
