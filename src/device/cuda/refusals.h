// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise {

// For tests: a memory that refuses one request for more of it, or several, as if there were none
// left. Everything that takes memory of a device asks here before it asks the device.
class Refusals {
 public:
  // From the `first` request from now on (1: the next), `count` of them are refused.
  void Plant(int64_t first, int64_t count = 1) {
    until_ = first;
    left_ = count;
  }
  // Requests since the beginning.
  int64_t requests() const { return requests_; }

  // Asks for the request at hand.
  bool Refused() {
    ++requests_;
    if (left_ == 0 || --until_ > 0) return false;
    --left_;
    return true;
  }

 private:
  int64_t requests_ = 0;
  int64_t until_ = 0;
  int64_t left_ = 0;
};

}  // namespace reprise
