// SPDX-License-Identifier: Apache-2.0
#include "tier/record.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

constexpr char kMagic[8] = {'R', 'P', 'R', 'S', 't', 'a', 't', 'e'};
constexpr uint32_t kVersion = 1;
constexpr size_t kFixedFacts = 5 * sizeof(PathId) + 4 * 4 + 3 * 8 + 2 * 4;
constexpr uint64_t kUnitBytesMax = uint64_t{1} << 36;  // of a block, of a snapshot
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

// Facts that a sealed record cannot have unless another version wrote it; without a secret anybody
// could.
Status Check(const RecordFacts& f) {
  const auto bad = [](const char* what) {
    return DataLoss(std::string("the record's ") + what + " cannot be");
  };
  if (f.begin < 0 || f.end <= f.begin || f.end > kPositionMax) return bad("positions");
  if ((f.begin == 0) != f.parent.empty()) return bad("parent");
  if (f.block_bytes > kUnitBytesMax || f.state_bytes > kUnitBytesMax) return bad("sizes");
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

uint64_t BlocksOfPart(const RecordFacts& facts) {
  return facts.block_bytes == 0 ? 1 : std::max<uint64_t>(1, kPartBytes / facts.block_bytes);
}

}  // namespace

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

uint64_t RecordBytes(const RecordFacts& facts) {
  const uint64_t group = BlocksOfPart(facts);
  const uint64_t parts =
      (facts.block_count + group - 1) / group + (facts.state_bytes + kPartBytes - 1) / kPartBytes;
  return kRecordFixedBytes + FactsBytes(facts.marks.size()) + Seal::kTagBytes * (parts + 1) +
         facts.block_count * facts.block_bytes + facts.state_bytes;
}

RecordLayout::RecordLayout(const RecordFacts& facts) {
  uint64_t at = kRecordFixedBytes + FactsBytes(facts.marks.size()) + Seal::kTagBytes;
  const uint64_t group = BlocksOfPart(facts);
  const auto add = [&](Part part) {
    part.offset = at;
    at += part.bytes + Seal::kTagBytes;
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
  file_bytes_ = at;
  CHECK(file_bytes_ == RecordBytes(facts));
}

std::vector<std::byte> EncodeHead(const RecordFacts& facts, const StateKey& key,
                                  const Seal::Salt& salt) {
  CHECK(Check(facts).ok() && facts.marks.size() <= kMarksMax);
  std::vector<std::byte> sealed;
  sealed.reserve(FactsBytes(facts.marks.size()));
  AppendFacts(facts, &sealed);
  std::vector<std::byte> head;
  Writer to(&head);
  to.Bytes(kMagic, sizeof(kMagic));
  to.Number(static_cast<uint16_t>(kVersion));
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
    return DataLoss("the file is no record of state");
  }
  RecordPreamble preamble;
  Reader from(bytes.subspan(sizeof(kMagic)));
  uint16_t version = 0;
  uint16_t secret = 0;
  from.Number(&version);
  from.Number(&secret);
  from.Number(&preamble.facts_bytes);
  from.Bytes(preamble.salt.data(), preamble.salt.size());
  if (version != kVersion) {
    return Unimplemented("the record has version " + std::to_string(version) +
                         "; this program reads " + std::to_string(kVersion));
  }
  if (secret > 1) return DataLoss("the record's flags cannot be");
  preamble.secret = secret == 1;
  if (preamble.facts_bytes < kFixedFacts || preamble.facts_bytes > FactsBytes(kMarksMax)) {
    return DataLoss("the record's size of facts cannot be");
  }
  return preamble;
}

Result<RecordFacts> DecodeHead(std::span<const std::byte> head, const StateKey& key,
                               std::unique_ptr<Seal>* seal) {
  REPRISE_ASSIGN(const RecordPreamble preamble, DecodePreamble(head));
  if (head.size() < preamble.head_bytes()) return DataLoss("the record is cut off");
  if (preamble.secret != key.secret()) {
    return FailedPrecondition(preamble.secret ? "the record needs its key (--state-key-file)"
                                              : "the record was written without the key");
  }
  const auto sealed = head.subspan(kRecordFixedBytes, preamble.facts_bytes);
  std::vector<std::byte> facts(sealed.begin(), sealed.end());
  Seal::Tag tag;
  std::memcpy(tag.data(), head.data() + kRecordFixedBytes + preamble.facts_bytes, tag.size());
  auto opening = std::make_unique<Seal>(key, preamble.salt);
  if (!opening->Open(0, facts, tag, head.first(kRecordFixedBytes))) {
    return DataLoss(key.secret() ? "the record is damaged, or was sealed with another key"
                                 : "the record is damaged");
  }
  if (seal != nullptr) *seal = std::move(opening);
  return DecodeFacts(facts);
}

}  // namespace reprise
