// SPDX-License-Identifier: Apache-2.0
#include "engine/sight/sight.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "state/virtual_tokens.h"

namespace reprise {

Sight::Sight(std::span<const PlacedPicture> pictures) {
  int32_t behind = 0, place_behind = 0;  // the last picture
  for (const PlacedPicture& one : pictures) {
    Seen& seen = seen_.emplace_back();
    seen.begin = one.begin;
    seen.end = one.begin + one.picture->tokens();
    seen.place = place_behind + (one.begin - behind);
    seen.picture = one.picture;
    behind = seen.end;
    place_behind = seen.place + one.picture->positions();
  }
}

std::array<int32_t, 3> Sight::PlaceOf(int32_t position) const {
  const auto next = std::upper_bound(seen_.begin(), seen_.end(), position,
                                     [](int32_t at, const Seen& seen) { return at < seen.begin; });
  if (next == seen_.begin()) return {position, position, position};
  const Seen& seen = *(next - 1);
  if (position < seen.end) {
    const int32_t index = position - seen.begin;
    if (seen.picture->in_line) {
      const int32_t place = seen.place + index;
      return {place, place, place};
    }
    return {seen.place, seen.place + index / seen.picture->columns,
            seen.place + index % seen.picture->columns};
  }
  const int32_t place = seen.place + seen.picture->positions() + (position - seen.end);
  return {place, place, place};
}

int32_t Sight::BlindFrom(int32_t position) const {
  for (const Seen& seen : seen_) {
    if (seen.end > position && seen.vectors.size() == 0) return std::max(seen.begin, position);
  }
  return kNowhere;
}

Status Sight::Look(Executor& executor, int32_t position) {
  for (Seen& seen : seen_) {
    if (seen.end <= position || seen.vectors.size() > 0) continue;
    if (seen.look == nullptr) {
      REPRISE_ASSIGN(seen.look, executor.BeginLook(seen.picture->pixels));
    }
    REPRISE_ASSIGN(const bool done, executor.AdvanceLook(seen.look.get()));
    if (done) seen.vectors = std::exchange(seen.look, nullptr)->TakeVectors();
    return OkStatus();
  }
  return OkStatus();
}

void Sight::AddRows(int32_t begin, int32_t end, uint32_t row_begin, int64_t dim,
                    std::vector<PictureRows>* rows) const {
  for (const Seen& seen : seen_) {
    const int32_t from = std::max(begin, seen.begin), to = std::min(end, seen.end);
    if (from >= to) continue;
    CHECK(seen.vectors.size() > 0);
    PictureRows part;
    part.row_begin = row_begin + static_cast<uint32_t>(from - begin);
    part.row_count = static_cast<uint32_t>(to - from);
    part.vectors = seen.vectors.data().As<const float>() + int64_t{from - seen.begin} * dim;
    rows->push_back(part);
  }
}

int32_t Sight::WholeRows(int32_t position, int32_t rows) const {
  const int32_t end = position + rows;
  for (const Seen& seen : seen_) {
    if (seen.begin >= end || seen.end <= end) continue;
    return (seen.begin > position ? seen.begin : seen.end) - position;
  }
  return rows;
}

void Sight::Forget(int32_t position) {
  for (Seen& seen : seen_) {
    if (seen.end <= position) seen.vectors = {};
  }
}

}  // namespace reprise
