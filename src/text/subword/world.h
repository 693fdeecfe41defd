// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/subword/byte_trie.h"
#include "text/subword/model.h"
#include "text/vocab/spec.h"

namespace reprise {

// World is RWKV's tokenizer: at every point the longest token that the text goes on with, on bytes.
// A byte that begins no token becomes the unknown token, or nothing.
class World final : public SubwordModel {
 public:
  explicit World(const VocabSpec& spec);

  void Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  ByteTrie trie_;  // value: id
  int32_t unknown_id_;
};

}  // namespace reprise
