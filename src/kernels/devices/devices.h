// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/joined/joined_memory.h"
#include "device/scratch.h"
#include "kernels/backend.h"
#include "kernels/devices/closed_memory.h"
#include "kernels/op_context.h"

namespace reprise {

class SplitBackend;

// The devices that a model lies on: a backend each, with a scratch of its own, and the memory of
// state above all of theirs. The first is home: tokens begin there and logits end there. Ops of one
// device see its memory alone; activations go to another by copies. Devices that are split by rows
// are one for whoever asks for ops.
//
// Thread safety: as Backend.
class Devices {
 public:
  struct Device {
    std::string name;  // "cpu", "cuda:0": those of one name take from the same memory
    std::unique_ptr<ClosedMemory> closed;  // that the backend was given; null: it has its own
    std::unique_ptr<Backend> backend;
  };
  // kLayers: each layer lies on one of them. kRows: all of them compute every layer together, and
  // are one context (kernels/split/split_backend.h).
  enum class Split : uint8_t { kLayers, kRows };
  ~Devices();
  explicit Devices(std::vector<Device> devices, Split split = Split::kLayers);

  bool split() const { return split_ != nullptr; }
  // The backend of all of them, or null: they are split by layers.
  SplitBackend* split_backend() const { return split_.get(); }
  int count() const { return int(contexts_.size()); }
  std::span<const OpContext> all() const { return contexts_; }
  const OpContext& at(int device) const { return contexts_[size_t(device)]; }
  std::string_view name(int device) const { return devices_[size_t(device)].name; }
  // Whether both take from the same memory.
  bool Share(int a, int b) const { return name(a) == name(b); }
  // Of the state of sequences.
  JoinedMemory& memory() { return *memory_; }

  // Gives back what steps took.
  void DropScratch();

 private:
  std::vector<Device> devices_;
  std::unique_ptr<SplitBackend> split_;
  std::vector<ScratchArena> scratch_;
  std::vector<OpContext> contexts_;
  std::unique_ptr<JoinedMemory> memory_;
};

}  // namespace reprise
