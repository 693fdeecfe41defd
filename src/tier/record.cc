// SPDX-License-Identifier: Apache-2.0
#include "tier/record.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

constexpr char kMagic[8] = {'R', 'P', 'R', 'S', 't', 'a', 't', 'e'};
constexpr uint16_t kVersion = 1, kPackedVersion = 2;
constexpr size_t kPackedPartBytes = 1 + 8;
constexpr size_t kFixedFacts = 5 * sizeof(PathId) + 4 * 4 + 3 * 8 + 2 * 4;
constexpr uint64_t kStateBytesMax = uint64_t{1} << 36;  // of a snapshot: it is cut into parts
constexpr int32_t kPositionMax = 1 << 28;

class Writer {
 public:
  explicit Writer(std::vector<std::byte>* out) : out_(out) {}
  template <typename T>
  void Number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_->push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void Bytes(const void* data, size_t size) {
    const size_t at = out_->size();
    out_->resize(at + size);
    std::memcpy(out_->data() + at, data, size);
  }

 private:
  std::vector<std::byte>* out_;
};

// REQUIRES: the caller has checked that there is enough.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  void Number(T* value) {
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      number |= uint64_t{static_cast<uint8_t>(in_[i])} << 8 * i;
    *value = static_cast<T>(number);
    in_ = in_.subspan(sizeof(T));
  }
  void Bytes(void* data, size_t size) {
    std::memcpy(data, in_.data(), size);
    in_ = in_.subspan(size);
  }

 private:
  std::span<const std::byte> in_;
};

uint64_t BlocksOfPart(const RecordFacts& facts) {
  return facts.block_bytes == 0 ? 1 : std::max<uint64_t>(1, kPartBytes / facts.block_bytes);
}

uint64_t PartCount(const RecordFacts& facts) {
  const uint64_t group = BlocksOfPart(facts);
  return (facts.block_count + group - 1) / group +
         (facts.state_bytes + kPartBytes - 1) / kPartBytes;
}

// Facts that a sealed record cannot have unless another version wrote it; without a secret anybody
// could.
Status Check(const RecordFacts& f) {
  const auto bad = [](const char* what) {
    return DataLoss(std::string("the record's ") + what + " cannot be");
  };
  if (f.begin < 0 || f.end <= f.begin || f.end > kPositionMax) return bad("positions");
  if ((f.begin == 0) != f.parent.empty()) return bad("parent");
  if (f.block_bytes > kBlockBytesMax || f.state_bytes > kStateBytesMax) return bad("sizes");
  if (PartCount(f) > kPartsMax) return bad("sizes");
  if (f.block_count > 0 && f.block_bytes == 0) return bad("sizes");
  if (f.block_count == 0 && f.state_bytes == 0) return bad("sizes");
  const auto blocks = static_cast<uint64_t>((int64_t{f.end} + kBlockTokens - 1) / kBlockTokens);
  if (f.block_count > blocks || f.first_block > blocks) return bad("blocks");
  if (f.block_count > 0 && uint64_t{f.first_block} + f.block_count != blocks) return bad("blocks");
  if (!f.marks.empty()) {
    const int32_t first = f.begin / kBlockTokens + 1;
    const int32_t last = (f.end - 1) / kBlockTokens;
    if (f.state_bytes > 0 || int64_t{last} - first + 1 != static_cast<int64_t>(f.marks.size())) {
      return bad("marks");
    }
  }
  return OkStatus();
}

// Of all that is sealed in a head, those that the facts say they take; no more than there are.
size_t FactsBytesIn(std::span<const std::byte> sealed) {
  uint32_t mark_count = 0;
  Reader(sealed.subspan(kFixedFacts - sizeof(mark_count))).Number(&mark_count);
  return std::min(sealed.size(), FactsBytes(mark_count));
}

// What is said of the parts of a packed record: as many as its facts have, none longer than it is.
Result<std::vector<PackedPart>> DecodePacked(const RecordFacts& facts,
                                             std::span<const std::byte> bytes) {
  if (bytes.size() != PartCount(facts) * kPackedPartBytes) {
    return DataLoss("the record's list of parts cannot be");
  }
  const RecordLayout plain(facts);
  std::vector<PackedPart> packed(plain.parts().size());
  Reader from(bytes);
  for (size_t i = 0; i < packed.size(); ++i) {
    const size_t whole = plain.parts()[i].bytes;
    from.Number(&packed[i].width);
    from.Number(&packed[i].bytes);
    const bool as_it_is = packed[i].width == 0 && packed[i].bytes == whole;
    const bool shorter = (packed[i].width == 2 || packed[i].width == 4) && packed[i].bytes > 0 &&
                         packed[i].bytes < whole && whole <= kPackBytesMax;
    if (!as_it_is && !shorter) return DataLoss("the record's list of parts cannot be");
  }
  return packed;
}

}  // namespace

bool CanBeStored(const RecordFacts& facts) {
  return facts.marks.size() <= kMarksMax && Check(facts).ok();
}

size_t FactsBytes(size_t mark_count) { return kFixedFacts + mark_count * sizeof(PathId); }

void AppendFacts(const RecordFacts& f, std::vector<std::byte>* out) {
  Writer to(out);
  for (const PathId* id : {&f.space, &f.model, &f.parent, &f.base, &f.path}) {
    to.Bytes(id->bytes.data(), id->bytes.size());
  }
  to.Number(f.begin);
  to.Number(f.end);
  to.Number(f.first_block);
  to.Number(f.block_count);
  to.Number(f.block_bytes);
  to.Number(f.state_bytes);
  to.Number(f.created_ms);
  to.Number(f.reason);
  to.Number(static_cast<uint32_t>(f.marks.size()));
  for (const PathId& mark : f.marks) to.Bytes(mark.bytes.data(), mark.bytes.size());
}

Result<RecordFacts> DecodeFacts(std::span<const std::byte> bytes) {
  RecordFacts f;
  uint32_t mark_count = 0;
  if (bytes.size() < kFixedFacts) return DataLoss("the record is cut off");
  Reader from(bytes);
  for (PathId* id : {&f.space, &f.model, &f.parent, &f.base, &f.path}) {
    from.Bytes(id->bytes.data(), id->bytes.size());
  }
  from.Number(&f.begin);
  from.Number(&f.end);
  from.Number(&f.first_block);
  from.Number(&f.block_count);
  from.Number(&f.block_bytes);
  from.Number(&f.state_bytes);
  from.Number(&f.created_ms);
  from.Number(&f.reason);
  from.Number(&mark_count);
  if (mark_count > kMarksMax || bytes.size() != FactsBytes(mark_count)) {
    return DataLoss("the record's marks cannot be");
  }
  f.marks.resize(mark_count);
  for (PathId& mark : f.marks) from.Bytes(mark.bytes.data(), mark.bytes.size());
  REPRISE_TRY(Check(f));
  return f;
}

size_t HeadBytes(const RecordFacts& facts, bool packed) {
  return kRecordFixedBytes + FactsBytes(facts.marks.size()) +
         (packed ? PartCount(facts) * kPackedPartBytes : 0) + Seal::kTagBytes;
}

uint64_t RecordBytes(const RecordFacts& facts) {
  return HeadBytes(facts, false) + Seal::kTagBytes * PartCount(facts) +
         facts.block_count * facts.block_bytes + facts.state_bytes;
}

uint64_t RecordBytesMax(const RecordFacts& facts) {
  return RecordBytes(facts) + PartCount(facts) * kPackedPartBytes;
}

RecordLayout::RecordLayout(const RecordFacts& facts) {
  const uint64_t group = BlocksOfPart(facts);
  const auto add = [&](Part part) {
    part.stored.bytes = part.bytes;
    parts_.push_back(part);
  };
  for (uint64_t done = 0; done < facts.block_count;) {
    const uint64_t count = std::min<uint64_t>(group, facts.block_count - done);
    add({.bytes = count * facts.block_bytes,
         .first_block = static_cast<uint32_t>(facts.first_block + done),
         .block_count = static_cast<uint32_t>(count)});
    done += count;
  }
  for (uint64_t done = 0; done < facts.state_bytes;) {
    const uint64_t bytes = std::min<uint64_t>(kPartBytes, facts.state_bytes - done);
    add({.bytes = bytes, .state_offset = done});
    done += bytes;
  }
  Place(HeadBytes(facts, false));
  CHECK(file_bytes_ == RecordBytes(facts));
}

RecordLayout::RecordLayout(const RecordFacts& facts, std::span<const PackedPart> packed)
    : RecordLayout(facts) {
  CHECK(packed.size() == parts_.size());
  for (size_t i = 0; i < packed.size(); ++i) parts_[i].stored = packed[i];
  Place(HeadBytes(facts, true));
}

// One behind the other.
void RecordLayout::Place(uint64_t head_bytes) {
  file_bytes_ = head_bytes;
  for (Part& part : parts_) {
    part.offset = file_bytes_;
    file_bytes_ += part.stored.bytes + Seal::kTagBytes;
  }
}

std::vector<std::byte> EncodeHead(const RecordFacts& facts, const StateKey& key,
                                  const Seal::Salt& salt, std::span<const PackedPart> packed) {
  CHECK(CanBeStored(facts));
  CHECK(packed.empty() || packed.size() == PartCount(facts));
  std::vector<std::byte> sealed;
  sealed.reserve(HeadBytes(facts, !packed.empty()));
  AppendFacts(facts, &sealed);
  Writer parts(&sealed);
  for (const PackedPart& part : packed) {
    parts.Number(part.width);
    parts.Number(part.bytes);
  }
  std::vector<std::byte> head;
  Writer to(&head);
  to.Bytes(kMagic, sizeof(kMagic));
  to.Number(packed.empty() ? kVersion : kPackedVersion);
  to.Number(static_cast<uint16_t>(key.secret() ? 1 : 0));
  to.Number(static_cast<uint32_t>(sealed.size()));
  to.Bytes(salt.data(), salt.size());
  CHECK(head.size() == kRecordFixedBytes);
  Seal seal(key, salt);
  const Seal::Tag tag = seal.Close(0, sealed, head);
  to.Bytes(sealed.data(), sealed.size());
  to.Bytes(tag.data(), tag.size());
  return head;
}

Result<RecordPreamble> DecodePreamble(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordFixedBytes) return DataLoss("the record is cut off");
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return DataLoss("the file is not a record of state");
  }
  RecordPreamble preamble;
  Reader from(bytes.subspan(sizeof(kMagic)));
  uint16_t version = 0;
  uint16_t secret = 0;
  from.Number(&version);
  from.Number(&secret);
  from.Number(&preamble.sealed_bytes);
  from.Bytes(preamble.salt.data(), preamble.salt.size());
  if (version != kVersion && version != kPackedVersion) {
    return Unimplemented("the record has version " + std::to_string(version) +
                         "; this program reads " + std::to_string(kVersion) + " and " +
                         std::to_string(kPackedVersion));
  }
  if (secret > 1) return DataLoss("the record's flags cannot be");
  preamble.secret = secret == 1;
  preamble.packed = version == kPackedVersion;
  const size_t list = preamble.packed ? kPackedPartsMax * kPackedPartBytes : 0;
  if (preamble.sealed_bytes < kFixedFacts || preamble.sealed_bytes > FactsBytes(kMarksMax) + list) {
    return DataLoss("the record's size of facts cannot be");
  }
  return preamble;
}

Result<RecordFacts> DecodeHead(std::span<const std::byte> head, const StateKey& key,
                               std::unique_ptr<Seal>* seal, std::vector<PackedPart>* packed) {
  REPRISE_ASSIGN(const RecordPreamble preamble, DecodePreamble(head));
  if (preamble.packed && packed == nullptr)
    return DataLoss("the record is packed as only those in folders are");
  if (head.size() < preamble.head_bytes()) return DataLoss("the record is cut off");
  if (preamble.secret != key.secret()) {
    return FailedPrecondition(preamble.secret ? "the record needs its key (--state-key-file)"
                                              : "the record was written without the key");
  }
  const auto sealed = head.subspan(kRecordFixedBytes, preamble.sealed_bytes);
  std::vector<std::byte> opened(sealed.begin(), sealed.end());
  Seal::Tag tag;
  std::memcpy(tag.data(), head.data() + kRecordFixedBytes + preamble.sealed_bytes, tag.size());
  auto opening = std::make_unique<Seal>(key, preamble.salt);
  if (!opening->Open(0, opened, tag, head.first(kRecordFixedBytes))) {
    return DataLoss(key.secret() ? "the record is damaged, or was sealed with another key"
                                 : "the record is damaged");
  }
  if (seal != nullptr) *seal = std::move(opening);
  if (packed != nullptr) packed->clear();
  if (!preamble.packed) return DecodeFacts(opened);
  const std::span<const std::byte> all = opened;
  REPRISE_ASSIGN(RecordFacts facts, DecodeFacts(all.first(FactsBytesIn(all))));
  REPRISE_ASSIGN(*packed, DecodePacked(facts, all.subspan(FactsBytes(facts.marks.size()))));
  return facts;
}

}  // namespace reprise
