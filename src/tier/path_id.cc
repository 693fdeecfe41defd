// SPDX-License-Identifier: Apache-2.0
#include "tier/path_id.h"

#include <openssl/sha.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/sha256.h"
#include "state/virtual_tokens.h"

namespace reprise {

PathId ExtendPath(const PathId& from, std::span<const TokenId> tokens) {
  CHECK(tokens.size() <= size_t{kBlockTokens});
  PathId id;
  if (std::any_of(tokens.begin(), tokens.end(), IsVirtual)) {
    std::string spelt(from.bytes.begin(), from.bytes.end());
    VirtualTokens::Get().Spell(tokens, &spelt);
    id.bytes = Sha256(spelt);
    return id;
  }
  std::array<uint8_t, sizeof(PathId) + kBlockTokens * 4> text;
  std::memcpy(text.data(), from.bytes.data(), sizeof(PathId));
  uint8_t* at = text.data() + sizeof(PathId);
  for (const TokenId token : tokens) {
    const auto value = static_cast<uint32_t>(token);
    for (int shift = 0; shift < 32; shift += 8) *at++ = static_cast<uint8_t>(value >> shift);
  }
  ::SHA256(text.data(), static_cast<size_t>(at - text.data()), id.bytes.data());
  return id;
}

PromptPath::PromptPath(const PathId& root, std::span<const TokenId> tokens)
    : PromptPath(root, tokens, InPieces()) {
  (void)Extend(tokens.size() / kBlockTokens);
}

bool PromptPath::Extend(size_t blocks) {
  const size_t all = tokens_.size() / kBlockTokens;
  grid_.reserve(all + 1);
  for (; blocks > 0 && grid_.size() <= all; --blocks) {
    const size_t begin = (grid_.size() - 1) * kBlockTokens;
    grid_.push_back(ExtendPath(grid_.back(), tokens_.subspan(begin, kBlockTokens)));
  }
  return grid_.size() > all;
}

PromptPaths::PromptPaths(std::span<const PathId> roots, std::span<const TokenId> tokens)
    : tokens_(tokens) {
  for (const PathId& root : roots) {
    if (In(root) == nullptr) paths_.emplace_back(root, tokens, PromptPath::InPieces());
  }
}

bool PromptPaths::Extend(size_t blocks) {
  for (PromptPath& path : paths_) {
    if (path.Extend(0)) continue;
    return path.Extend(blocks) && &path == &paths_.back();
  }
  return true;
}

const PromptPath* PromptPaths::In(const PathId& root) const {
  const auto path = std::find_if(paths_.begin(), paths_.end(),
                                 [&](const PromptPath& one) { return one.grid(0) == root; });
  return path == paths_.end() ? nullptr : &*path;
}

PathId PromptPath::At(int32_t position) const {
  CHECK(position >= 0 && position <= size());
  const int32_t block = position / kBlockTokens;
  const int32_t tail = position % kBlockTokens;
  if (tail == 0) return grid(block);
  return ExtendPath(grid(block), tokens_.subspan(static_cast<size_t>(block) * kBlockTokens,
                                                 static_cast<size_t>(tail)));
}

}  // namespace reprise
