// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

// The digest of a file that comes in pieces, of the kind that `expected` is: SHA-256 of the bytes
// (64 digits), or git's SHA-1 of a blob (40 digits), whose head has the number of bytes. Uses the
// processor's instructions where it has them.
//
// Thread safety: none.
class Digest {
 public:
  // REQUIRES: IsDigest(expected).
  Digest(std::string_view expected, uint64_t bytes);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(std::string_view piece);
  std::string Finish();  // hexadecimal; once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace reprise::hub
