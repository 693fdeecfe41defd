// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/settings.h"

namespace reprise::hub {

// Tells a person what happens: one line.
using Say = std::function<void(const std::string& line)>;

// Tries again what may mend itself (kInternal): after a pause that doubles, or as long as the hub
// asks for; a few times in a row without progress. Everything else is final.
//
// Thread safety: none.
class Retries {
 public:
  Retries(const Settings& settings, Say say) : settings_(settings), say_(std::move(say)) {}

  // `why` failed. Waits and returns OK if it is worth another try, else what to give up with.
  // `asked_seconds`: the hub's own wish (Retry-After).
  Status Wait(const Status& why, std::optional<uint64_t> asked_seconds = std::nullopt);
  // Something was achieved: the count begins anew.
  void Progressed() { failures_ = 0; }

 private:
  const Settings& settings_;
  const Say say_;
  int failures_ = 0;
};

}  // namespace reprise::hub
