// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tier/folder/folder.h"
#include "tier/home.h"
#include "tier/record.h"

namespace reprise {

// A file that is closed in the end.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// A record being written: under another name until all of it is on the disk, so that a file that
// has the name of a record is whole, whatever happens. Gone if it is not committed.
class RecordDraft : public RecordSink {
 public:
  // Folder and key must outlive it. `pack`: its parts are compressed where that makes them shorter.
  static Result<RecordDraft> Create(StateFolder& folder, const StateKey& key, std::string name,
                                    const RecordFacts& facts, bool pack = false);
  RecordDraft(RecordDraft&& other) noexcept = default;
  ~RecordDraft() override;

  Status Append(std::span<std::byte> data) override;
  // Returns when the record would be found after a power cut.
  Status Commit() override;
  uint64_t bytes() const override { return end_; }

 private:
  RecordDraft(StateFolder& folder, const StateKey& key, std::string name, const RecordFacts& facts)
      : folder_(&folder), key_(&key), name_(std::move(name)), facts_(facts) {}
  Status Add(std::span<const std::byte> bytes);

  StateFolder* folder_;
  const StateKey* key_;
  std::string name_;
  RecordFacts facts_;
  Seal::Salt salt_ = RandomSalt();
  std::unique_ptr<Seal> seal_ = std::make_unique<Seal>(*key_, salt_);
  OpenFile file_;
  bool pack_ = false;
  std::vector<PackedPart> packed_;  // what is there already, if it packs
  uint64_t end_ = 0;                // of what is there; the head is written last
  uint32_t parts_ = 0;
};

class RecordFile : public RecordSource {
 public:
  // Reads the head. Refuses a file that is not exactly as long as its head says.
  static Result<RecordFile> Open(StateFolder& folder, const StateKey& key, const std::string& name);

  const RecordFacts& facts() const override { return facts_; }
  const RecordLayout& layout() const override { return layout_; }
  uint64_t bytes() const { return bytes_; }
  bool packed() const { return packed_; }
  int64_t used_ms() const { return used_ms_; }  // StateFolder::Listed
  void Want(std::span<const size_t> parts) override;
  Status ReadPart(size_t index, std::span<std::byte> out) override;

 private:
  RecordFile(StateFolder& folder, OpenFile file) : folder_(&folder), file_(std::move(file)) {}
  Status Read(std::span<std::byte> out, uint64_t offset) const;

  StateFolder* folder_;
  OpenFile file_;
  RecordFacts facts_;
  RecordLayout layout_;
  bool packed_ = false;
  uint64_t bytes_ = 0;
  int64_t used_ms_ = 0;
  std::unique_ptr<Seal> seal_;
  std::vector<std::byte> scratch_;  // for a part that is compressed
};

// Does what writing a record does, with a file of so many zeros that is gone in the end.
Status TryToWrite(StateFolder& folder, size_t bytes);

// Reads and checks all of a record.
Status VerifyRecord(StateFolder& folder, const StateKey& key, const std::string& name);

}  // namespace reprise
