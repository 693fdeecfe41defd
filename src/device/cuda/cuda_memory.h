// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/status.h"
#include "device/cuda/refusals.h"
#include "device/host_lane.h"
#include "device/memory.h"
#include "device/joined/peer_memory.h"

struct CUevent_st;
struct CUstream_st;

namespace reprise {

// Memory of one NVIDIA GPU. Everything goes through one stream, on which the backend's kernels run,
// too, so all of it is in order. Reserved addresses get their pages from the driver's virtual
// memory management, in units of page_bytes().
//
// A binary with this class needs no driver to start: the runtime is linked in, and the driver is
// looked for when Open is called.
class CudaMemory : public DeviceMemory, public LaneSource, public PeerMemory {
 public:
  struct Device {
    int ordinal = 0;
    std::string name;
    int major = 0;  // compute capability
    int minor = 0;
    int multiprocessors = 0;
  };

  // Fails with one sentence where there is no driver, no such GPU, or none that this binary has
  // code for.
  static Result<std::unique_ptr<CudaMemory>> Open(int ordinal);
  ~CudaMemory() override;

  const Device& device() const { return device_; }
  // What is allocated and committed together stays below it; the driver's own is not counted.
  void SetLimit(size_t bytes) { limit_ = bytes; }
  CUstream_st* stream() const { return stream_; }
  // The calling thread works with this GPU from now on. Every function here does so by itself;
  // who launches kernels on the stream does it before.
  void Use() const override;
  // Asked before everything that takes memory: allocations, pages, memory of the host that the GPU
  // reaches, graphs.
  Refusals& refusals() { return refusals_; }

  Result<DeviceBuffer> Allocate(size_t bytes) override;
  Result<DeviceBuffer> Reserve(size_t bytes) override;
  Status Commit(DevicePtr<std::byte> begin, size_t bytes) override;
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override;
  size_t page_bytes() const override { return page_bytes_; }

  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override;
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Zero(DevicePtr<std::byte> to, size_t bytes) override;
  void Synchronize() override;
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  // From another GPU, or from another stream of this one.
  bool TakeRows(DeviceMemory& from, DevicePtr<const std::byte> source, DevicePtr<std::byte> to,
                size_t width, size_t pitch, size_t rows) override;
  Result<std::unique_ptr<HostLane>> OpenLane(size_t bytes) override;
  Capacity capacity() const override;

 private:
  class Allocation;
  struct Range;
  class RangeOwner;

  static constexpr size_t kStagedBytes = size_t{8} << 20;

  CudaMemory() = default;
  // What the stream is asked for from now on comes behind what `other` was asked for.
  void WaitFor(CudaMemory* other);
  // Whether what is asked of the stream is recorded as a graph: memory cannot be taken then, and
  // trying to would spoil the recording.
  bool recording() const;
  void* Staging();  // kStagedBytes of pinned memory, or null: there is none
  Range* RangeOf(const std::byte* address);
  Status Map(Range* range, size_t page);
  void Grant(const Range& range, size_t first, size_t last);
  size_t Left() const { return limit_ - (taken_ < limit_ ? taken_ : limit_); }

  Device device_;
  CUstream_st* stream_ = nullptr;
  std::set<int> reached_;        // GPUs whose memory was asked for
  CUevent_st* asked_ = nullptr;  // what was asked for so far, for streams that wait for it
  size_t page_bytes_ = 0;
  void* staging_ = nullptr;
  size_t limit_ = SIZE_MAX;
  size_t taken_ = 0;
  Refusals refusals_;
  std::map<const std::byte*, Range*> ranges_;  // by first address
};

}  // namespace reprise
