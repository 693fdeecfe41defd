// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tier/state_key.h"

namespace reprise {

// The keys of what lies outside of memory: it is written with the current one and read with that or
// the one before. So a key is changed without a cold start: what is continued is written anew, and
// when the old key is taken away only what nobody continued meanwhile is lost.
//
// Names (of namespaces, documents, owners) are derived from keys, too: what is looked for has a
// name by each. A record of one key never continues a record of the other.
//
// Thread safety: immutable.
class StateKeys {
 public:
  StateKeys() = default;  // no secret
  // NOLINTNEXTLINE(google-explicit-constructor): mostly there is one.
  StateKeys(const StateKey& current) : keys_{current, StateKey()} {}
  StateKeys(const StateKey& current, const StateKey& before)
      : keys_{current, before}, rotates_(true) {}

  const StateKey& current() const { return keys_[0]; }
  // Current first.
  std::span<const StateKey> all() const { return std::span(keys_).first(rotates_ ? 2 : 1); }
  std::optional<PathId> NamespaceBefore(std::string_view digest, std::string_view salt) const {
    if (!rotates_) return std::nullopt;
    return keys_[1].NamespaceOf(digest, salt);
  }

  // What `open` (a Status or a Result) makes of something stored, with the key that it was stored
  // with: how it fails with the first one says whether that was the wrong one.
  template <typename Open>
  auto Try(const Open& open) const {
    auto opened = open(keys_[0]);
    if (opened.ok() || !rotates_) return opened;
    const StatusCode code = CodeOf(opened);
    const bool of_another =
        code == StatusCode::kDataLoss || code == StatusCode::kFailedPrecondition;
    if (!of_another) return opened;
    return open(keys_[1]);
  }

 private:
  static StatusCode CodeOf(const Status& status) { return status.code(); }
  template <typename T>
  static StatusCode CodeOf(const Result<T>& result) {
    return result.status().code();
  }

  std::array<StateKey, 2> keys_;
  bool rotates_ = false;
};

}  // namespace reprise
