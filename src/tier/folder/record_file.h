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
  // Folder and key must outlive it.
  static Result<RecordDraft> Create(StateFolder& folder, const StateKey& key, std::string name,
                                    const RecordFacts& facts);
  RecordDraft(RecordDraft&& other) noexcept = default;
  ~RecordDraft() override;

  Status Append(std::span<std::byte> data) override;
  // Returns when the record would be found after a power cut.
  Status Commit() override;

 private:
  RecordDraft(StateFolder& folder, const StateKey& key, std::string name, const Seal::Salt& salt)
      : folder_(&folder), name_(std::move(name)), seal_(std::make_unique<Seal>(key, salt)) {}
  Status Write(std::span<const std::byte> bytes);

  StateFolder* folder_;
  std::string name_;
  std::unique_ptr<Seal> seal_;
  OpenFile file_;
  size_t bytes_left_ = 0;
  uint32_t parts_ = 0;
};

class RecordFile : public RecordSource {
 public:
  // Reads the head. Refuses a file that is not exactly as long as its head says.
  static Result<RecordFile> Open(StateFolder& folder, const StateKey& key, const std::string& name);

  const RecordFacts& facts() const override { return facts_; }
  uint64_t bytes() const { return bytes_; }
  int64_t used_ms() const { return used_ms_; }  // StateFolder::Listed
  void Want(std::span<const size_t> parts) override;
  Status ReadPart(const RecordLayout& layout, size_t index, std::span<std::byte> out) override;

 private:
  RecordFile(StateFolder& folder, OpenFile file) : folder_(&folder), file_(std::move(file)) {}
  Status Read(std::span<std::byte> out, uint64_t offset) const;

  StateFolder* folder_;
  OpenFile file_;
  RecordFacts facts_;
  uint64_t bytes_ = 0;
  int64_t used_ms_ = 0;
  std::unique_ptr<Seal> seal_;
};

// Reads and checks all of a record.
Status VerifyRecord(StateFolder& folder, const StateKey& key, const std::string& name);

}  // namespace reprise
