// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tier/state_key.h"

namespace reprise {

// Seal protects the parts of one record. With a secret each part is encrypted and authenticated
// (AES-256-GCM, a key of its own for every record, the part's number as nonce); without one it
// carries a checksum (XXH3-128, seeded by record and part). Either way a part that was changed,
// cut, or taken from another place or record does not open.
//
// Thread safety: none; threads that work on one record have a seal each.
class Seal {
 public:
  static constexpr size_t kSaltBytes = 16;
  static constexpr size_t kTagBytes = 16;
  using Salt = std::array<uint8_t, kSaltBytes>;
  using Tag = std::array<uint8_t, kTagBytes>;

  // `salt` must be random: no two records of one key may have the same.
  Seal(const StateKey& key, const Salt& salt);
  ~Seal();

  // In place. `also` is protected with the part, but stays as it is.
  Tag Close(uint32_t part, std::span<std::byte> data, std::span<const std::byte> also = {});
  // In place; false: not what was closed. The data is worthless then.
  bool Open(uint32_t part, std::span<std::byte> data, const Tag& tag,
            std::span<const std::byte> also = {});

 private:
  struct Cipher;

  Tag Sum(uint32_t part, std::span<const std::byte> data, std::span<const std::byte> also) const;

  std::unique_ptr<Cipher> cipher_;  // null: checksums
  uint64_t seed_ = 0;
};

Seal::Salt RandomSalt();

}  // namespace reprise
