// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_lane.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <span>
#include <string>
#include <thread>

#include "device/cuda/must.h"
#include "device/raw.h"

namespace reprise {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kEvents = 16;  // a few loads and a spill have one each

// A page is there when it was written to; that takes longer than to pin it, and one thread fills
// about 3 GB in a second.
void Touch(std::span<std::byte> bytes) {
  const size_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  const size_t share = (bytes.size() / threads + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::vector<std::thread> touching;
  for (size_t begin = 0; begin < bytes.size(); begin += share) {
    touching.emplace_back([part = bytes.subspan(begin, std::min(share, bytes.size() - begin))] {
      for (size_t at = 0; at < part.size(); at += kPageBytes) {
        *static_cast<volatile std::byte*>(&part[at]) = std::byte{0};
      }
    });
  }
  for (std::thread& thread : touching) thread.join();
}

CUevent_st* MakeEvent() {
  CUevent_st* event = nullptr;
  Must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  return event;
}

}  // namespace

Result<std::unique_ptr<CudaLane>> CudaLane::Open(int gpu, CUstream_st* ops, size_t bytes) {
  UseGpu(gpu);
  std::unique_ptr<CudaLane> lane(new CudaLane);
  lane->gpu_ = gpu;
  lane->ops_ = ops;
  REPRISE_ASSIGN(lane->buffer_, Buffer::Allocate(bytes));
  lane->data_ = lane->buffer_.data();
  Touch(lane->buffer_.bytes());
  const bool pinned =
      bytes == 0 || cudaHostRegister(lane->data_, bytes, cudaHostRegisterDefault) == cudaSuccess;
  lane->pinned_ = pinned && bytes > 0;
  if (!pinned || cudaStreamCreateWithFlags(&lane->copies_, cudaStreamNonBlocking) != cudaSuccess ||
      cudaEventCreateWithFlags(&lane->order_, cudaEventDisableTiming) != cudaSuccess) {
    const std::string why = cudaGetErrorString(cudaGetLastError());
    return ResourceExhausted("the host has no " + std::to_string(bytes >> 20) +
                             " MiB of memory that the GPU can reach: " + why);
  }
  for (size_t i = 0; i < kEvents; ++i) lane->spare_.push_back(MakeEvent());
  return lane;
}

CudaLane::~CudaLane() {
  UseGpu(gpu_);
  if (copies_ != nullptr) {
    cudaStreamSynchronize(copies_);
    cudaStreamDestroy(copies_);
  }
  for (const Sign& sign : signs_) cudaEventDestroy(sign.event);
  for (CUevent_st* event : spare_) cudaEventDestroy(event);
  if (order_ != nullptr) cudaEventDestroy(order_);
  if (pinned_) cudaHostUnregister(data_);
}

void CudaLane::Follow() {
  UseGpu(gpu_);
  Must(cudaEventRecord(order_, ops_), "an event");
  Must(cudaStreamWaitEvent(copies_, order_, 0), "a copy's turn");
}

void CudaLane::Join() {
  UseGpu(gpu_);
  Must(cudaEventRecord(order_, copies_), "an event");
  Must(cudaStreamWaitEvent(ops_, order_, 0), "a kernel's turn");
}

void CudaLane::Out(std::byte* to, DevicePtr<const std::byte> from, size_t bytes) {
  UseGpu(gpu_);
  if (bytes == 0) return;
  Must(cudaMemcpyAsync(to, Raw(from), bytes, cudaMemcpyDeviceToHost, copies_), "a copy out");
}

void CudaLane::In(DevicePtr<std::byte> to, const std::byte* from, size_t bytes) {
  UseGpu(gpu_);
  if (bytes == 0) return;
  Must(cudaMemcpyAsync(Raw(to), from, bytes, cudaMemcpyHostToDevice, copies_), "a copy in");
}

CUevent_st* CudaLane::TakeEvent() {
  if (spare_.empty()) return MakeEvent();
  CUevent_st* event = spare_.back();
  spare_.pop_back();
  return event;
}

uint64_t CudaLane::Mark() {
  UseGpu(gpu_);
  CUevent_st* event = TakeEvent();
  Must(cudaEventRecord(event, copies_), "an event");
  signs_.push_back({++marks_, event});
  return marks_;
}

bool CudaLane::Reached(uint64_t mark) {
  UseGpu(gpu_);
  while (!signs_.empty()) {
    const cudaError_t state = cudaEventQuery(signs_.front().event);
    if (state == cudaErrorNotReady) break;
    Must(state, "a copy");
    spare_.push_back(signs_.front().event);
    signs_.pop_front();
  }
  return signs_.empty() || mark < signs_.front().mark;
}

}  // namespace reprise
