// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tier/guard/day_budget.h"

namespace reprise {

// What was written of a day's bytes, in a file of a folder ("day"), so that a restart is no new day
// even if what was written is gone by now. It only helps: one that is damaged or not there is
// nothing written.

struct WrittenDay {
  uint64_t bytes = 0;
  int64_t at_ms = 0;  // since 1970

  // What counts of it now. A clock that went back gives nothing.
  uint64_t Now(int64_t now_ms, uint64_t bytes_max) const;
};

WrittenDay ReadWrittenDay(int folder_fd);
void RememberWrittenDay(int folder_fd, const WrittenDay& day);

}  // namespace reprise
