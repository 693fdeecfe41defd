// SPDX-License-Identifier: Apache-2.0
#include "model/vision/seen_picture.h"

#include <string>
#include <utility>

#include "base/sha256.h"
#include "model/vision/tower.h"
#include "picture/resize.h"
#include "state/virtual_tokens.h"

namespace reprise {

Result<std::shared_ptr<const SeenPicture>> SeePicture(const TowerCard& tower, std::string_view file,
                                                      const PictureLimits& limits) {
  REPRISE_ASSIGN(const PictureSize stored, ReadPictureSize(file, limits));
  REPRISE_TRY(PatchedSize(stored, tower.rules).status());
  REPRISE_ASSIGN(Pixels pixels, DecodePicture(file, limits));
  REPRISE_ASSIGN(const PictureSize size, PatchedSize({pixels.width, pixels.height}, tower.rules));
  auto seen = std::make_shared<SeenPicture>();
  seen->pixels = Resize(pixels, size.width, size.height, tower.rules.filter);
  const int side = tower.rules.patch * tower.rules.merge;
  seen->rows = size.height / side;
  seen->columns = size.width / side;
  seen->in_line = tower.in_line;
  std::string text = "picture 1\n" + tower.digest + "\n" + tower.rules.Describe() + "\n" +
                     std::to_string(size.width) + " x " + std::to_string(size.height) + "\n";
  text.append(reinterpret_cast<const char*>(seen->pixels.rgb.data()), seen->pixels.rgb.size());
  REPRISE_ASSIGN(seen->first, VirtualTokens::Get().Take(Sha256(text), seen->tokens()));
  return std::shared_ptr<const SeenPicture>(std::move(seen));
}

}  // namespace reprise
