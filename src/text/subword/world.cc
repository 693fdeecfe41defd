// SPDX-License-Identifier: Apache-2.0
#include "text/subword/world.h"

#include <algorithm>
#include <utility>

namespace reprise {

World::World(const VocabSpec& spec) : unknown_id_(spec.unknown_id) {
  std::vector<ByteTrie::Key> keys;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.kinds.empty() && spec.kinds[id] != TokenKind::kNormal) continue;
    keys.push_back({spec.tokens[id], static_cast<int32_t>(id)});
  }
  trie_ = ByteTrie::Build(std::move(keys));
}

void World::Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch*,
                   std::vector<int32_t>* ids) const {
  for (const Piece piece : pieces) {
    std::string_view left = text.substr(piece.begin, piece.end - piece.begin);
    while (!left.empty()) {
      const ByteTrie::Match match = trie_.FindLongest(left);
      const int32_t id = match.value >= 0 ? match.value : unknown_id_;
      if (id >= 0) ids->push_back(id);
      left.remove_prefix(std::max<size_t>(match.length, 1));
    }
  }
}

}  // namespace reprise
