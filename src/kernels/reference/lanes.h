// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reprise::reference {

// The virtual lanes of kernels/cpu/table.h: element i of a reduction goes to lane i % 16.
struct Lanes {
  float lane[16] = {};

  // ((l0 + l8) + (l4 + l12)) + ..., as the table says.
  float Sum() const {
    float s[16];
    for (int i = 0; i < 16; ++i) s[i] = lane[i];
    for (int width = 8; width >= 1; width /= 2) {
      for (int i = 0; i < width; ++i) s[i] += s[i + width];
    }
    return s[0];
  }
};

}  // namespace reprise::reference
