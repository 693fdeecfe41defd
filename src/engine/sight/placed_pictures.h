// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "cache/state_cache.h"
#include "model/vision/seen_picture.h"
#include "state/ids.h"

namespace reprise {

// A picture in a prompt: the tokens from `begin` on are its tokens.
struct PlacedPicture {
  int32_t begin = 0;
  std::shared_ptr<const SeenPicture> picture;
};

// Puts the tokens of pictures into a prompt, each in the place of one token `place`, of which the
// model's chat template writes one for a picture, in order. Boundaries, ascending, move along.
// Fails and changes nothing if there are not as many places.
Status PlacePictures(std::span<const std::shared_ptr<const SeenPicture>> pictures, TokenId place,
                     std::vector<TokenId>* prompt, std::vector<Boundary>* boundaries,
                     std::vector<PlacedPicture>* placed);

// Whether the tokens below 0 of a prompt are those of its pictures, each in its place.
Status CheckPictures(std::span<const TokenId> prompt, std::span<const PlacedPicture> pictures);

}  // namespace reprise
