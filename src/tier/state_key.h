// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tier/path_id.h"

namespace reprise {

// The secret of a state folder or store. Without one, records are checked against damage only, and
// anyone who may read the folder may read them.
class StateKey {
 public:
  using Bytes = std::array<uint8_t, 32>;

  StateKey() = default;  // no secret
  // A file of 32 bytes, or of 64 hexadecimal digits, that only its owner may read.
  static Result<StateKey> Read(const std::string& path);
  static StateKey Of(const Bytes& secret);  // for tests

  bool secret() const { return secret_; }
  // A key for one purpose: HMAC-SHA-256 of the label and what it is about.
  Bytes Derive(std::string_view label, std::string_view about) const;
  // The namespace of a model (its digest) and a tenant (its salt): where their paths begin. Nobody
  // without the secret can tell whether two folders have one in common.
  PathId NamespaceOf(std::string_view digest, std::string_view salt) const;

 private:
  bool secret_ = false;
  Bytes key_{};
};

}  // namespace reprise
