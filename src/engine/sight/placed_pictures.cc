// SPDX-License-Identifier: Apache-2.0
#include "engine/sight/placed_pictures.h"

#include <algorithm>
#include <utility>

#include "state/virtual_tokens.h"

namespace reprise {

Status PlacePictures(std::span<const std::shared_ptr<const SeenPicture>> pictures, TokenId place,
                     std::vector<TokenId>* prompt, std::vector<Boundary>* boundaries,
                     std::vector<PlacedPicture>* placed) {
  if (std::count(prompt->begin(), prompt->end(), place) != std::ssize(pictures)) {
    return InvalidArgument("the model's chat template has no place for pictures in these messages");
  }
  std::vector<TokenId> ids;
  auto boundary = boundaries->begin();
  auto picture = pictures.begin();
  for (size_t at = 0; at <= prompt->size(); ++at) {
    for (; boundary != boundaries->end() && size_t(boundary->position) == at; ++boundary) {
      boundary->position = static_cast<int32_t>(ids.size());
    }
    if (at == prompt->size()) break;
    if ((*prompt)[at] != place) {
      ids.push_back((*prompt)[at]);
      continue;
    }
    placed->push_back({static_cast<int32_t>(ids.size()), *picture});
    for (int32_t i = 0; i < (*picture)->tokens(); ++i) ids.push_back((*picture)->first + i);
    ++picture;
  }
  *prompt = std::move(ids);
  return OkStatus();
}

Status CheckPictures(std::span<const TokenId> prompt, std::span<const PlacedPicture> pictures) {
  const auto wrong = [] {
    return InvalidArgument("the prompt's pictures are not in their places");
  };
  size_t of_pictures = 0;
  int32_t behind = 0;
  for (const PlacedPicture& one : pictures) {
    const int32_t count = one.picture->tokens();
    if (one.begin < behind || count > static_cast<int64_t>(prompt.size()) - one.begin) {
      return wrong();
    }
    for (int32_t i = 0; i < count; ++i) {
      if (prompt[static_cast<size_t>(one.begin + i)] != one.picture->first + i) return wrong();
    }
    behind = one.begin + count;
    of_pictures += static_cast<size_t>(count);
  }
  const auto below = std::count_if(prompt.begin(), prompt.end(), IsVirtual);
  return static_cast<size_t>(below) == of_pictures ? OkStatus() : wrong();
}

}  // namespace reprise
