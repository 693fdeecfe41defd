// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "device/memory.h"
#include "state/spec.h"

namespace reprise {

// How the recurrent state of a sequence lies outside of memory: as in memory, or rounded. Rounded
// state has the f32 tensors of all layers, in order, as bf16 (to nearest, ties to even), then the
// other tensors as they are, and nothing between them: about half the bytes. It is not what a cold
// run would have: whoever keeps it keeps it apart, and says so to whoever starts from it.
class StatePacking {
 public:
  StatePacking() = default;  // as in memory
  static StatePacking Rounded(const StateSpec& spec);

  bool rounded() const { return rounded_; }
  // What tells those packed so from others; part of the name of what they belong to.
  std::string_view tag() const { return rounded_ ? "/snapshots bf16" : ""; }
  // Of a state that takes so many in memory.
  size_t bytes(size_t state_bytes) const { return rounded_ ? bytes_ : state_bytes; }

  // The packed bytes from `offset` on, as many as `out` has, of the state that lies at `state`.
  // REQUIRES: offset and size are even, where rounded.
  void Read(DeviceMemory& device, DevicePtr<const std::byte> state, size_t offset,
            std::span<std::byte> out) const;
  // The same, the other way. Padding between tensors stays as it is.
  void Write(DeviceMemory& device, DevicePtr<std::byte> state, size_t offset,
             std::span<const std::byte> packed) const;

 private:
  struct Tensor {
    size_t offset = 0;  // in memory
    size_t bytes = 0;
    size_t packed = 0;  // offset
    bool round = false;
    size_t packed_bytes() const { return round ? bytes / 2 : bytes; }
  };
  bool rounded_ = false;
  std::vector<Tensor> tensors_;  // by `packed`
  size_t bytes_ = 0;
};

}  // namespace reprise
