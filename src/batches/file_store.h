// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::batches {

struct StoredFile {
  std::string id = {};
  std::string tenant = {};  // who alone sees it
  std::string name = {};    // as its client called it; never a path of this machine
  std::string purpose = {};
  uint64_t bytes = 0;
  int64_t created = 0;  // seconds since 1970
};

// "file-" (or another prefix) and 24 random hexadecimal digits.
std::string NewId(const char* prefix);
int64_t NowSeconds();

// Files of tenants in a folder, each beside a small description. What a crash left half-written is
// removed when the folder is opened. All files together have at most `bytes_max`, and one tenant at
// most 1,000.
//
// Thread safety: all methods from any thread.
class FileStore {
 public:
  static Result<std::unique_ptr<FileStore>> Open(const std::string& folder, uint64_t bytes_max);

  Result<StoredFile> Add(StoredFile file, std::string_view content);
  // Those of a tenant, the newest first.
  std::vector<StoredFile> List(const std::string& tenant) const;
  std::optional<StoredFile> Find(const std::string& tenant, const std::string& id) const;
  Result<std::string> Read(const StoredFile& file) const;
  // False: there is no such file.
  bool Remove(const std::string& tenant, const std::string& id);

 private:
  FileStore(std::string folder, uint64_t bytes_max)
      : folder_(std::move(folder)), bytes_max_(bytes_max) {}

  Status Scan();
  std::string PathOf(const std::string& id) const { return folder_ + "/" + id; }

  const std::string folder_;
  const uint64_t bytes_max_;
  mutable std::mutex mutex_;                 // guards what follows
  std::map<std::string, StoredFile> files_;  // by id
  uint64_t bytes_ = 0;
};

}  // namespace reprise::batches
