// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/audit_pictures.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "model/vision/tower.h"
#include "state/virtual_tokens.h"

namespace reprise {

AuditPictures::AuditPictures(const TowerCard& tower) {
  constexpr int kPictures = 6;
  constexpr uint64_t kSideMost = 96;
  Rng rng(1);
  for (int i = 0; i < kPictures; ++i) {
    const int width = 8 + static_cast<int>(rng.Below(kSideMost));
    const int height = 8 + static_cast<int>(rng.Below(kSideMost));
    const auto size = PatchedSize({width, height}, tower.rules);
    CHECK(size.ok());
    auto seen = std::make_shared<SeenPicture>();
    seen->pixels = {size->width, size->height, {}};
    seen->pixels.rgb.resize(size_t(size->width) * size_t(size->height) * 3);
    for (uint8_t& value : seen->pixels.rgb) value = static_cast<uint8_t>(rng.Below(256));
    const int side = tower.rules.patch * tower.rules.merge;
    seen->rows = size->height / side;
    seen->columns = size->width / side;
    seen->in_line = tower.in_line;
    const std::string name = "audit " + tower.digest + " " + std::to_string(i);
    const auto first = VirtualTokens::Get().Take(Sha256(name), seen->tokens());
    CHECK(first.ok());
    seen->first = *first;
    pictures_.push_back(std::move(seen));
  }
}

void AuditPictures::Show(Rng* rng, std::vector<TokenId>* tokens) const {
  const SeenPicture& picture = *pictures_[rng->Below(pictures_.size())];
  for (int32_t i = 0; i < picture.tokens(); ++i) tokens->push_back(picture.first + i);
}

const SeenPicture* AuditPictures::WholeAt(std::span<const TokenId> tokens, size_t at) const {
  for (const auto& picture : pictures_) {
    const auto count = static_cast<size_t>(picture->tokens());
    if (tokens[at] != picture->first || tokens.size() - at < count) continue;
    bool whole = true;
    for (size_t i = 0; i < count; ++i) {
      whole = whole && tokens[at + i] == picture->first + static_cast<TokenId>(i);
    }
    if (whole) return picture.get();
  }
  return nullptr;
}

void AuditPictures::DropParts(std::vector<TokenId>* tokens) const {
  std::vector<TokenId> whole;
  for (size_t at = 0; at < tokens->size();) {
    const SeenPicture* const picture = WholeAt(*tokens, at);
    const size_t count = picture != nullptr ? static_cast<size_t>(picture->tokens()) : 1;
    if (picture != nullptr || !IsVirtual((*tokens)[at])) {
      whole.insert(whole.end(), tokens->begin() + static_cast<ptrdiff_t>(at),
                   tokens->begin() + static_cast<ptrdiff_t>(at + count));
    }
    at += count;
  }
  *tokens = std::move(whole);
}

std::vector<PlacedPicture> AuditPictures::FindIn(std::span<const TokenId> tokens) const {
  std::vector<PlacedPicture> placed;
  for (size_t at = 0; at < tokens.size(); ++at) {
    if (!IsVirtual(tokens[at])) continue;
    const auto found =
        std::ranges::find(pictures_, tokens[at], [](const auto& one) { return one->first; });
    CHECK(found != pictures_.end());
    placed.push_back({static_cast<int32_t>(at), *found});
    at += static_cast<size_t>((*found)->tokens()) - 1;
  }
  return placed;
}

ColdSight::ColdSight(Executor& executor, const AuditPictures& pictures,
                     std::span<const TokenId> tokens)
    : sight_(pictures.FindIn(tokens)), tokens_(tokens.begin(), tokens.end()) {
  while (sight_.BlindFrom(0) != Sight::kNowhere) CHECK(sight_.Look(executor, 0).ok());
  const auto count = static_cast<int32_t>(tokens.size());
  for (int32_t at = 0; at < count; ++at) places_.push_back(sight_.PlaceOf(at));
  sight_.AddRows(0, count, 0, executor.tower()->card().dim, &rows_);
  std::replace_if(tokens_.begin(), tokens_.end(), IsVirtual, 0);
}

void ColdSight::AddTo(BatchView* batch) const {
  batch->tokens = tokens_;
  batch->places = places_;
  batch->pictures = rows_;
}

}  // namespace reprise
