// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "tier/folder/folder.h"
#include "tier/home.h"
#include "tier/seal.h"
#include "tier/state_key.h"

namespace reprise {

// The index of a folder is what its records' heads say, in one file: a start that finds it need not
// open them all. It is written when a store ends, and only helps: which records there are says the
// folder, a record that the index does not know is opened, and what is read of a record is checked
// against its own head. So an index that is old, damaged, foreign or not there costs time alone,
// and when a record was last used may be older than it was.
//
//   clear   magic, version, whether sealed with a secret, count, salt
//   sealed  of each record its name, when it was used, the room it takes, size of its facts, facts
//           (record.h); a tag

inline constexpr size_t kIndexBytesMax = size_t{64} << 20;

// What a record takes of the folder: the pages of its file, and a share of the index.
uint64_t RoomOf(uint64_t file_bytes);
// What a record may take in the index, by the room that it has: more than almost all do. Those that
// would take more are not in it, so it never takes more than was set aside for it.
uint64_t IndexShare(uint64_t room);

// Of those that are readable and fit.
std::vector<std::byte> EncodeIndex(std::span<const RecordHome::Listed> records, const StateKey& key,
                                   const Seal::Salt& salt);
// Takes bytes from outside, and overwrites them.
Result<std::vector<RecordHome::Listed>> DecodeIndex(std::span<std::byte> bytes,
                                                    const StateKey& key);

// Nothing, where there is none that can be used.
std::vector<RecordHome::Listed> ReadIndex(const StateFolder& folder, const StateKey& key);
// Takes the place of the one that is there. With few records there is none: they are quickly read.
Status WriteIndex(const StateFolder& folder, const StateKey& key,
                  std::span<const RecordHome::Listed> records);

}  // namespace reprise
