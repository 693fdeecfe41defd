// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "state/ids.h"

namespace reprise {

// A token that stands for a part of something that is no text (a picture) and is in no vocabulary.
// Inside this process it is a number below 0, so it goes wherever tokens go: prompts, the tree,
// single flight.
inline constexpr bool IsVirtual(TokenId token) { return token < 0; }

// What virtual tokens are: place `index` of the run called `name`, a SHA-256 of all that the model
// sees there. The numbers are those of this process; outside of it a token is its name and index.
//
// 1. Two virtual tokens are equal exactly if their names and indices are: no part of a name is ever
//    left out, so nobody can make two pictures that are taken for each other.
// 2. A run's tokens follow one another: first, first + 1, ...
// 3. Numbers are not given back: what is cached may hold them. There are enough for a million
//    pictures of 1080p; then further ones are refused.
//
// Thread safety: all methods from any thread.
class VirtualTokens {
 public:
  using Name = std::array<uint8_t, 32>;
  struct Place {
    Name name;
    int32_t index = 0;
  };
  static constexpr size_t kRunsMax = size_t{1} << 20;

  // Those of this process.
  static VirtualTokens& Get();

  // The first token of the run, the same for the same name. Fails with kResourceExhausted when no
  // numbers are left. REQUIRES: count > 0, one count for a name.
  Result<TokenId> Take(const Name& name, int32_t count);
  // REQUIRES: IsVirtual(token), and Take gave it.
  Place Find(TokenId token) const;

  // What a run of tokens is outside of this process: ids of a vocabulary as four bytes, little
  // endian; virtual ones as four bytes of ones, the name and the index. Different runs have
  // different texts.
  void Spell(std::span<const TokenId> tokens, std::string* out) const;
  // A number for it outside of this process: 64 bits of the SHA-256 of how it is spelt.
  uint64_t Word(TokenId token) const;

 private:
  struct Run {
    TokenId first = 0;
    int32_t count = 0;
    Name name;
  };

  mutable std::shared_mutex mutex_;  // guards what follows
  std::map<Name, size_t> by_name_;
  std::vector<Run> runs_;  // by first, without gaps from INT32_MIN on
};

}  // namespace reprise
