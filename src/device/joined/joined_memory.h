// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/joined/unit_memory.h"
#include "device/memory.h"

namespace reprise {

// The memories of several devices as one, for whoever owns state and copies it: units have one
// address each, and their pieces lie where their layers compute (UnitShape). Ops never see such an
// address: PlaceIn says where the parts of one memory begin. What is no unit lies in the first, or
// where SetRest says.
//
// Thread safety: as the memories have it; ReserveUnits is called by one thread while no other
// calls anything.
// Invariants: a page of a memory is there while a unit that is committed reaches into it.
class JoinedMemory final : public DeviceMemory, public UnitMemory {
 public:
  // One of them. Those of one `store` take from the same bytes.
  struct Part {
    DeviceMemory* memory = nullptr;
    int store = 0;
  };
  // What is pointed to must outlive it.
  explicit JoinedMemory(std::vector<Part> parts);
  ~JoinedMemory() override;

  size_t count() const { return parts_.size(); }
  // Where all that is no unit lies from now on. It must outlive this.
  void SetRest(DeviceMemory* rest) { rest_ = rest; }
  // Which share of the state lies in each of them.
  void SetShares(std::vector<double> shares) { shares_ = std::move(shares); }
  // How much state there is room for where a memory alone has room for `free` bytes.
  using Free = std::function<uint64_t(const DeviceMemory&)>;
  uint64_t Room(const Free& free) const;

  Result<DeviceBuffer> Allocate(size_t bytes) override { return rest_->Allocate(bytes); }
  Result<DeviceBuffer> Reserve(size_t bytes) override { return rest_->Reserve(bytes); }
  Result<DeviceBuffer> ReserveUnits(const UnitShape& shape, size_t count) override;
  DevicePtr<std::byte> PlaceIn(int memory, DevicePtr<std::byte> units) const override;
  const UnitShape* ShapeOf(DevicePtr<std::byte> units) const override;
  size_t UnitBytesIn(int memory, DevicePtr<std::byte> units) const override;
  Status Commit(DevicePtr<std::byte> begin, size_t bytes) override;
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override;
  size_t page_bytes() const override { return 64; }  // units are given back one by one

  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override;
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Zero(DevicePtr<std::byte> to, size_t bytes) override;
  bool copies_by_caller() const override;
  void Synchronize() override;
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Capacity capacity() const override;

 private:
  struct Units;
  class Owner;
  // A run of bytes that lies in one memory.
  struct Run {
    int memory = 0;
    DevicePtr<std::byte> place;
    size_t bytes = 0;
  };

  static constexpr int kRest = -1;
  DeviceMemory& MemoryOf(const Run& run) const {
    return run.memory == kRest ? *rest_ : *parts_[size_t(run.memory)].memory;
  }
  const Units* UnitsOf(const std::byte* address) const;
  // The run that begins at `at`, no longer than `bytes`.
  Run RunAt(DevicePtr<const std::byte> at, size_t bytes) const;
  void ForEachRun(DevicePtr<const std::byte> at, size_t bytes,
                  const std::function<void(const Run&, size_t done)>& visit) const;

  const std::vector<Part> parts_;
  DeviceMemory* rest_ = nullptr;
  std::vector<double> shares_;
  std::map<const std::byte*, Units*> units_;  // by first address
};

}  // namespace reprise
