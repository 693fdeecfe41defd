// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/names/listing.h"

namespace reprise::hub {

// The cache that the hub's own tools keep, with their layout:
//
//   models--ORG--REPO/blobs/DIGEST                     a file's content, whole and checked
//   models--ORG--REPO/blobs/DIGEST.incomplete          the first part of one
//   models--ORG--REPO/refs/REVISION                    a commit
//   models--ORG--REPO/snapshots/COMMIT/PATH            a relative symbolic link to a blob
//   .locks/models--ORG--REPO/DIGEST.lock               held while a blob is written
//
// A blob has its name only when it is whole: it is written under the other name, flushed to the
// disk and renamed. Names come from ModelName and Listing, which let nothing through that leaves
// its folder.
//
// Thread safety: none needed; several processes may use one cache.
class CacheFolder {
 public:
  explicit CacheFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string RepoPath(const std::string& repo) const;
  std::string BlobPath(const std::string& repo, const std::string& digest) const;
  std::string LockPath(const std::string& repo, const std::string& digest) const;
  std::string LocksPath(const std::string& repo) const;
  std::string SnapshotPath(const std::string& repo, const std::string& commit) const;

  // The commit that a revision was when it was last looked up; a commit is itself.
  std::optional<std::string> ReadRef(const std::string& repo, const std::string& revision) const;
  Status WriteRef(const std::string& repo, const std::string& revision,
                  const std::string& commit) const;

  // Whether the blob is there, with so many bytes.
  bool HasBlob(const std::string& repo, const HubFile& file) const;
  // Makes `file` of the snapshot a link to its blob, in one step.
  Status Link(const std::string& repo, const std::string& commit, const HubFile& file) const;

  // What there is: repositories by name, commits of one (the last used first), files of a snapshot
  // whose blobs exist (without digests). Each with a bound.
  std::vector<std::string> Repos() const;
  std::vector<std::string> Commits(const std::string& repo) const;
  std::vector<HubFile> Files(const std::string& repo, const std::string& commit) const;

  // Creates the folder and marks it as a cache (CACHEDIR.TAG), for programs that make backups.
  Status Create() const;
  // Bytes that may still be written there; nothing if the system does not say.
  std::optional<uint64_t> FreeBytes() const;

 private:
  const std::string path_;
};

}  // namespace reprise::hub
