// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/buffer.h"
#include "device/host_lane.h"

struct CUevent_st;
struct CUstream_st;

namespace reprise {

// Pinned memory, and a stream of its own for a GPU's copy engine beside `ops`, on which the
// kernels run.
class CudaLane final : public HostLane {
 public:
  // Takes all of the memory now: pages are touched by several threads, then pinned.
  static Result<std::unique_ptr<CudaLane>> Open(int gpu, CUstream_st* ops, size_t bytes);
  ~CudaLane() override;

  std::byte* data() const override { return data_; }
  size_t size() const override { return buffer_.size(); }
  bool beside() const override { return true; }
  void Follow() override;
  void Out(std::byte* to, DevicePtr<const std::byte> from, size_t bytes) override;
  void In(DevicePtr<std::byte> to, const std::byte* from, size_t bytes) override;
  void Join() override;
  uint64_t Mark() override;
  bool Reached(uint64_t mark) override;

 private:
  struct Sign {
    uint64_t mark = 0;
    CUevent_st* event = nullptr;
  };
  CudaLane() = default;
  CUevent_st* TakeEvent();

  int gpu_ = 0;
  Buffer buffer_;
  std::byte* data_ = nullptr;
  bool pinned_ = false;
  CUstream_st* ops_ = nullptr;
  CUstream_st* copies_ = nullptr;
  CUevent_st* order_ = nullptr;  // of one stream behind the other
  std::deque<Sign> signs_;       // not reached when they were last looked at
  std::vector<CUevent_st*> spare_;
  uint64_t marks_ = 0;
};

}  // namespace reprise
