// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tier/seal.h"
#include "tier/state_key.h"

namespace reprise {

// A document is some bytes of an owner, as they lie outside of memory.
//
//   head      clear   magic, whether sealed with a secret, size of the content, salt, owner, time
//   content   sealed  as it is, and a tag that protects head, content and the document's id
//
// All numbers are little endian. A file has exactly one right size. The id is not in it: a document
// under the id of another does not open.
using OwnerId = std::array<uint8_t, 16>;

struct DocumentHead {
  bool secret = false;
  uint32_t content_bytes = 0;
  Seal::Salt salt{};
  OwnerId owner{};
  int64_t created_ms = 0;  // since 1970

  uint64_t file_bytes() const;
};

inline constexpr size_t kDocumentHeadBytes = 64;
inline constexpr size_t kDocumentBytesMax = size_t{64} << 20;

// REQUIRES: content of at most kDocumentBytesMax.
std::vector<std::byte> EncodeDocument(const OwnerId& owner, int64_t created_ms,
                                      std::string_view content, std::string_view id,
                                      const StateKey& key);

// Both take bytes from outside: the first the beginning of a file, the second all of it.
Result<DocumentHead> DecodeDocumentHead(std::span<const std::byte> bytes);
Result<std::string> DecodeDocument(std::span<std::byte> file, std::string_view id,
                                   const StateKey& key);

}  // namespace reprise
