// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tier/path_id.h"
#include "tier/seal.h"

namespace reprise {

// A record is the state of one run of tokens as it lies outside of memory: the K/V blocks of
// positions [begin, end) of a path and, where the model has recurrent state, the snapshot at `end`.
// What lies before `begin` is in the records of its parents, which begin before it does. Where all
// layers have windows, one that begins at 0 may have the blocks of the last window alone. No token
// is in it: a path's id names them all.
//
//   head   clear   magic, version, whether sealed with a secret, size of what is sealed, salt
//          sealed  facts (RecordFacts); if the record is packed, how each part lies there; a tag
//   parts  sealed  K/V in groups of whole blocks, then the snapshot, each of at most kPartBytes
//                  where a block allows, each with its tag; part 0 is the head, they are 1, 2, ...
//
// All numbers are little endian. What the parts' sizes are follows from the facts alone, what they
// take in a packed record (version 2: parts may be compressed, pack/pack.h) from its head: so a
// file has exactly one right size. A record is immutable.
struct RecordFacts {
  PathId space;   // the namespace: id of the empty path
  PathId model;   // an id of the model's digest, for lists
  PathId parent;  // id of the path [0, begin); empty if begin is 0
  PathId base;    // id of the path up to the last block's end at or before `end`
  PathId path;    // id of the path [0, end)
  int32_t begin = 0;
  int32_t end = 0;
  uint32_t first_block = 0;  // grid index of the first block that is here
  uint32_t block_count = 0;  // they reach up to `end`, or there are none
  uint64_t block_bytes = 0;
  uint64_t state_bytes = 0;  // 0: no snapshot
  int64_t created_ms = 0;    // since 1970
  uint32_t reason = 0;       // why it was stored: the cache's affair
  // Models without recurrent state may be cut anywhere: ids of the path at the ends of blocks
  // strictly inside (begin, end), ascending. Empty otherwise, and where it has not all blocks.
  std::vector<PathId> marks;

  friend bool operator==(const RecordFacts&, const RecordFacts&) = default;
};

inline constexpr size_t kPartBytes = size_t{4} << 20;
inline constexpr size_t kRecordFixedBytes = 32;  // of the head, before the facts
inline constexpr size_t kMarksMax = 1 << 16;
// A part has at least one block, and whoever reads one takes memory for it, on the word of a head
// that anybody may have written: so blocks have a bound far above those of any model.
inline constexpr size_t kBlockBytesMax = size_t{256} << 20;
inline constexpr size_t kPartsMax = 1 << 18;

// Whether a record may have these facts.
bool CanBeStored(const RecordFacts& facts);

// What the clear beginning of a head says.
struct RecordPreamble {
  bool secret = false;
  bool packed = false;
  uint32_t sealed_bytes = 0;
  Seal::Salt salt{};

  size_t head_bytes() const { return kRecordFixedBytes + sealed_bytes + Seal::kTagBytes; }
};

// How a part lies in a packed record.
struct PackedPart {
  uint8_t width = 0;   // pack/pack.h; 0: as it is
  uint64_t bytes = 0;  // that it takes there, without its tag

  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};
// Larger parts are not compressed: nobody takes memory for a size that a few bytes claim.
inline constexpr size_t kPackBytesMax = size_t{64} << 20;
inline constexpr size_t kPackedPartsMax = 1 << 18;  // records with more are not packed

// Where the parts lie. Part `i` counts from 0 here.
class RecordLayout {
 public:
  RecordLayout() = default;  // of nothing
  explicit RecordLayout(const RecordFacts& facts);
  // Of a packed record. REQUIRES: one for each part.
  RecordLayout(const RecordFacts& facts, std::span<const PackedPart> packed);

  struct Part {
    uint64_t offset = 0;       // in the file
    size_t bytes = 0;          // of state
    uint32_t first_block = 0;  // grid index; K/V parts only
    uint32_t block_count = 0;  // 0: a part of the snapshot
    size_t state_offset = 0;   // parts of the snapshot
    PackedPart stored = {};    // in the file; its tag follows
  };
  const std::vector<Part>& parts() const { return parts_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  void Place(uint64_t head_bytes);

  std::vector<Part> parts_;
  uint64_t file_bytes_ = 0;
};

// The size of a record's file; as RecordLayout says, without the work. A packed one is larger than
// that by what its head says of the parts, at most.
uint64_t RecordBytes(const RecordFacts& facts);
uint64_t RecordBytesMax(const RecordFacts& facts);
size_t HeadBytes(const RecordFacts& facts, bool packed);

// The size of the facts with so many marks, and the facts as so many bytes. The reader takes bytes
// from outside.
size_t FactsBytes(size_t mark_count);
void AppendFacts(const RecordFacts& facts, std::vector<std::byte>* out);
Result<RecordFacts> DecodeFacts(std::span<const std::byte> bytes);

// The head of a record with that salt; of a packed one, if there is something for each part.
std::vector<std::byte> EncodeHead(const RecordFacts& facts, const StateKey& key,
                                  const Seal::Salt& salt, std::span<const PackedPart> packed = {});

// Both take bytes from outside. The first needs kRecordFixedBytes, the second the whole head; it
// gives what opens the parts, too, if that is wanted, and how they lie there: empty, if the record
// is not packed. Without a place for that, packed ones are refused.
Result<RecordPreamble> DecodePreamble(std::span<const std::byte> bytes);
Result<RecordFacts> DecodeHead(std::span<const std::byte> head, const StateKey& key,
                               std::unique_ptr<Seal>* seal = nullptr,
                               std::vector<PackedPart>* packed = nullptr);

}  // namespace reprise
