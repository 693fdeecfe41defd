// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::hub {

// A file of a model on the hub.
struct HubFile {
  std::string path;  // in the model's folder: "model.gguf", "UD-Q4_K_XL/model-00001-of-00002.gguf"
  uint64_t bytes = 0;
  // What its content must be, and its name among the blobs of the cache: 64 hexadecimal digits of
  // SHA-256 (large files) or 40 of git's SHA-1. Empty: the listing does not say.
  std::string digest;
};

// The files of a model at one commit. All of it comes from a server: paths stay inside their
// folder, digests are digests, a path occurs once.
struct Listing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;

  const HubFile* Find(std::string_view path) const;

  // The hub's answer about a model (api/models/ORG/REPO/revision/REV?blobs=true). Files whose path
  // is not one are left out. Fails with kDataLoss if there is no commit.
  static Result<Listing> Parse(std::string_view json);
};

// 40 (git, SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
bool IsDigest(std::string_view text);
bool IsCommit(std::string_view text);
// A relative path without "." and "..", of printable parts, that can be a file in a snapshot.
bool IsHubPath(std::string_view path);

}  // namespace reprise::hub
