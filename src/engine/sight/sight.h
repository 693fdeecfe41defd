// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "engine/request.h"
#include "model/executor.h"
#include "model/vision/tower.h"
#include "state/batch.h"

namespace reprise {

// The pictures of a sequence: where its tokens stand for rotary embedding, and the vectors that
// rows of pictures begin with. The tower looks at a picture when a row of it is about to be
// computed, and not before: what is found in the cache needs no vectors.
//
// 1. Places follow from the tokens alone: a token of text stands one behind the place before it, a
//    picture's tokens stand at its beginning in time and by row and column around it, and what
//    follows begins behind the longer side; or they stand one behind another, as those of a text
//    (SeenPicture::in_line). So state that is restored goes on where it would have.
// 2. A sequence that has no pictures has no Sight.
//
// Thread safety: none.
class Sight {
 public:
  static constexpr int32_t kNowhere = std::numeric_limits<int32_t>::max();

  explicit Sight(std::span<const PlacedPicture> pictures);

  // Where the token at `position` stands: time, row, column.
  std::array<int32_t, 3> PlaceOf(int32_t position) const;
  // The first token at or behind `position` that has no vector yet; kNowhere: all have.
  int32_t BlindFrom(int32_t position) const;
  // Looks at a part of the picture that token belongs to. REQUIRES: BlindFrom(position) is no
  // further than that picture. Fails as VisionTower::Look::Advance does.
  Status Look(Executor& executor, int32_t position);
  // The rows [begin, end) of the sequence, which begin at `row_begin` of a batch, as far as they
  // are of pictures. REQUIRES: they have vectors.
  void AddRows(int32_t begin, int32_t end, uint32_t row_begin, int64_t dim,
               std::vector<PictureRows>* rows) const;
  // How many rows from `position` on a step has that wants `rows` and must not end inside a
  // picture: fewer, or, where it begins with a picture, all of that.
  int32_t WholeRows(int32_t position, int32_t rows) const;
  // Gives back the vectors of pictures that end at or before `position`: they are computed.
  void Forget(int32_t position);

 private:
  struct Seen {
    int32_t begin = 0;
    int32_t end = 0;
    int32_t place = 0;  // of its beginning
    std::shared_ptr<const SeenPicture> picture;
    std::unique_ptr<VisionTower::Look> look;  // under way
    DeviceBuffer vectors;                     // once it is done
  };

  std::vector<Seen> seen_;  // ascending
};

}  // namespace reprise
