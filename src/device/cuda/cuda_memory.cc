// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_memory.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_lane.h"
#include "device/cuda/must.h"
#include "device/raw.h"

namespace reprise {
namespace {

// There where a driver is loaded, whether it is recent enough or not.
constexpr const char* kDriverVersion = "/proc/driver/nvidia/version";

std::string Mebibytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// The driver's functions, found at run time: the binary is not linked with the driver.
struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
};

template <typename Function>
bool Find(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  *function = reinterpret_cast<Function>(found);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

const Driver* FindDriver() {
  static const std::unique_ptr<Driver> driver = [] {
    auto found = std::make_unique<Driver>();
    const bool all = Find("cuMemAddressReserve", &found->reserve) &&
                     Find("cuMemAddressFree", &found->free) &&
                     Find("cuMemCreate", &found->create) && Find("cuMemRelease", &found->release) &&
                     Find("cuMemMap", &found->map) && Find("cuMemUnmap", &found->unmap) &&
                     Find("cuMemSetAccess", &found->set_access) &&
                     Find("cuMemGetAllocationGranularity", &found->granularity);
    return all ? std::move(found) : nullptr;
  }();
  return driver.get();
}

CUmemAllocationProp PropertiesOf(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return properties;
}

}  // namespace

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s: %s\n", what, cudaGetErrorString(error));
  CHECK(error == cudaSuccess);
}

namespace {
thread_local int used_gpu = -1;
}  // namespace

void UseGpu(int ordinal) {
  if (used_gpu == ordinal) return;
  Must(cudaSetDevice(ordinal), "choosing a GPU");
  used_gpu = ordinal;
}

int UsedGpu() { return used_gpu; }

class CudaMemory::Allocation : public DeviceBuffer::Owner {
 public:
  Allocation(CudaMemory* memory, void* data, size_t bytes)
      : memory_(memory), data_(data), bytes_(bytes) {}
  ~Allocation() override {
    memory_->Use();
    // Kernels that were asked for may still read it.
    cudaStreamSynchronize(memory_->stream_);
    cudaFree(data_);
    memory_->taken_ -= bytes_;
  }

 private:
  CudaMemory* memory_;
  void* data_;
  size_t bytes_;
};

// Addresses, and the pages that are mapped there.
struct CudaMemory::Range {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  std::vector<CUmemGenericAllocationHandle> pages;  // 0: none
};

class CudaMemory::RangeOwner : public DeviceBuffer::Owner {
 public:
  RangeOwner(CudaMemory* memory, std::unique_ptr<Range> range)
      : memory_(memory), range_(std::move(range)) {
    memory_->ranges_[range_->begin] = range_.get();
  }
  ~RangeOwner() override {
    memory_->Discard(PlaceAt(range_->begin), range_->bytes);
    memory_->ranges_.erase(range_->begin);
    FindDriver()->free(reinterpret_cast<CUdeviceptr>(range_->begin), range_->bytes);
  }

 private:
  CudaMemory* memory_;
  std::unique_ptr<Range> range_;
};

Result<std::unique_ptr<CudaMemory>> CudaMemory::Open(int ordinal) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver && ::access(kDriverVersion, F_OK) == 0) {
    return FailedPrecondition(
        "the driver of the NVIDIA GPU does not know CUDA 13: update it to 580 or later");
  }
  if (found == cudaErrorInsufficientDriver || found == cudaErrorNoDevice || count == 0) {
    return NotFound(
        "there is no NVIDIA GPU here, or no driver that knows CUDA 13; run with --device cpu");
  }
  if (found != cudaSuccess) {
    return FailedPrecondition(std::string("the GPU cannot be used: ") + cudaGetErrorString(found));
  }
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgument("there is no GPU " + std::to_string(ordinal) + "; this machine has " +
                           std::to_string(count));
  }
  std::unique_ptr<CudaMemory> memory(new CudaMemory);
  cudaDeviceProp properties;
  if (cudaSetDevice(ordinal) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess || FindDriver() == nullptr ||
      cudaStreamCreateWithFlags(&memory->stream_, cudaStreamNonBlocking) != cudaSuccess) {
    return FailedPrecondition("GPU " + std::to_string(ordinal) +
                              " cannot be used: " + cudaGetErrorString(cudaGetLastError()));
  }
  used_gpu = ordinal;
  memory->device_ = {ordinal, properties.name, properties.major, properties.minor,
                     properties.multiProcessorCount};
  const CUmemAllocationProp pages = PropertiesOf(ordinal);
  CHECK(FindDriver()->granularity(&memory->page_bytes_, &pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
        CUDA_SUCCESS);
  return memory;
}

void CudaMemory::Use() const { UseGpu(device_.ordinal); }

bool CudaMemory::recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream_, &status) != cudaSuccess ||
         status != cudaStreamCaptureStatusNone;
}

CudaMemory::~CudaMemory() {
  if (stream_ != nullptr) Use();
  cudaFreeHost(staging_);
  if (asked_ != nullptr) cudaEventDestroy(asked_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<DeviceBuffer> CudaMemory::Allocate(size_t bytes) {
  Use();
  void* data = nullptr;
  if (bytes > 0 && (refusals_.Refused() || recording() || bytes > Left() ||
                    cudaMalloc(&data, bytes) != cudaSuccess)) {
    cudaGetLastError();
    return ResourceExhausted("the GPU has no " + Mebibytes(bytes) + " left (" +
                             Mebibytes(capacity().free) + " are free)");
  }
  taken_ += bytes;
  DeviceBuffer buffer(std::make_unique<Allocation>(this, data, bytes),
                      PlaceAt(static_cast<std::byte*>(data)), bytes);
  Zero(buffer.data(), bytes);
  return buffer;
}

Result<DeviceBuffer> CudaMemory::Reserve(size_t bytes) {
  Use();
  auto range = std::make_unique<Range>();
  range->bytes = (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  if (range->bytes == 0) return DeviceBuffer();
  CUdeviceptr begin = 0;
  if (FindDriver()->reserve(&begin, range->bytes, 0, 0, 0) != CUDA_SUCCESS) {
    return ResourceExhausted("the GPU's address space has no " + Mebibytes(range->bytes) + " left");
  }
  range->begin = reinterpret_cast<std::byte*>(begin);
  range->pages.resize(range->bytes / page_bytes_);
  std::byte* const place = range->begin;
  return DeviceBuffer(std::make_unique<RangeOwner>(this, std::move(range)), PlaceAt(place), bytes);
}

CudaMemory::Range* CudaMemory::RangeOf(const std::byte* address) {
  const auto after = ranges_.upper_bound(address);
  CHECK(after != ranges_.begin());
  Range* range = std::prev(after)->second;
  CHECK(address < range->begin + range->bytes);
  return range;
}

// Puts a page where there is none. Nobody may touch it before Grant.
Status CudaMemory::Map(Range* range, size_t page) {
  const CUmemAllocationProp properties = PropertiesOf(device_.ordinal);
  const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(range->begin + page * page_bytes_);
  CUmemGenericAllocationHandle handle = 0;
  if (refusals_.Refused() || recording() || page_bytes_ > Left() ||
      FindDriver()->create(&handle, page_bytes_, &properties, 0) != CUDA_SUCCESS) {
    return ResourceExhausted("the GPU has no memory left for state (" + Mebibytes(capacity().free) +
                             " are free)");
  }
  CHECK(FindDriver()->map(at, page_bytes_, 0, handle, 0) == CUDA_SUCCESS);
  range->pages[page] = handle;
  taken_ += page_bytes_;
  return OkStatus();
}

// Lets the device at the new pages [first, last), zeroed.
void CudaMemory::Grant(const Range& range, size_t first, size_t last) {
  if (first == last) return;
  std::byte* const begin = range.begin + first * page_bytes_;
  const size_t bytes = (last - first) * page_bytes_;
  const CUmemAccessDesc access = {PropertiesOf(device_.ordinal).location,
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(FindDriver()->set_access(reinterpret_cast<CUdeviceptr>(begin), bytes, &access, 1) ==
        CUDA_SUCCESS);
  Zero(PlaceAt(begin), bytes);
}

// New pages side by side are granted and zeroed together: a recurrent state is dozens of them, and
// the first step of a request waits for it.
Status CudaMemory::Commit(DevicePtr<std::byte> begin, size_t bytes) {
  Use();
  if (bytes == 0) return OkStatus();
  Range& range = *RangeOf(Raw(begin));
  const size_t offset = size_t(Raw(begin) - range.begin);
  const size_t last = (offset + bytes + page_bytes_ - 1) / page_bytes_;
  Status mapped;
  for (size_t page = offset / page_bytes_; page < last && mapped.ok(); ++page) {
    const size_t first = page;
    for (; page < last && range.pages[page] == 0; ++page) {
      mapped = Map(&range, page);
      if (!mapped.ok()) break;
    }
    Grant(range, first, page);
  }
  return mapped;
}

void CudaMemory::Discard(DevicePtr<std::byte> begin, size_t bytes) {
  Use();
  if (bytes == 0) return;
  Range& range = *RangeOf(Raw(begin));
  const size_t offset = size_t(Raw(begin) - range.begin);
  bool waited = false;
  // Whole pages only.
  for (size_t page = (offset + page_bytes_ - 1) / page_bytes_;
       (page + 1) * page_bytes_ <= offset + bytes; ++page) {
    if (range.pages[page] == 0) continue;
    if (!waited) Synchronize();
    waited = true;
    const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(range.begin + page * page_bytes_);
    CHECK(FindDriver()->unmap(at, page_bytes_) == CUDA_SUCCESS);
    CHECK(FindDriver()->release(range.pages[page]) == CUDA_SUCCESS);
    range.pages[page] = 0;
    taken_ -= page_bytes_;
  }
}

void CudaMemory::Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) {
  Use();
  // From pageable memory: returns when `from` has been read.
  if (bytes > 0)
    Must(cudaMemcpyAsync(Raw(to), from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
}

void CudaMemory::Download(void* to, DevicePtr<const std::byte> from, size_t bytes) {
  Use();
  // Small results go through memory that the device writes to at once.
  void* place = bytes <= kStagedBytes ? Staging() : nullptr;
  if (place == nullptr) place = to;
  if (bytes > 0) {
    Must(cudaMemcpyAsync(place, Raw(from), bytes, cudaMemcpyDeviceToHost, stream_), "download");
  }
  Synchronize();
  if (place != to) std::memcpy(to, place, bytes);
}

void* CudaMemory::Staging() {
  if (staging_ == nullptr && cudaMallocHost(&staging_, kStagedBytes) != cudaSuccess) {
    cudaGetLastError();
    staging_ = nullptr;
  }
  return staging_;
}

void CudaMemory::Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) {
  Use();
  if (bytes > 0) {
    Must(cudaMemcpyAsync(Raw(to), Raw(from), bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
  }
}

void CudaMemory::WaitFor(CudaMemory* other) {
  other->Use();
  if (other->asked_ == nullptr) {
    Must(cudaEventCreateWithFlags(&other->asked_, cudaEventDisableTiming), "making an event");
  }
  Must(cudaEventRecord(other->asked_, other->stream_), "marking a stream");
  Use();
  Must(cudaStreamWaitEvent(stream_, other->asked_), "waiting for a stream");
}

// GPUs that cannot reach one another go through the host: the driver sees to that.
bool CudaMemory::TakeRows(DeviceMemory& from, DevicePtr<const std::byte> source,
                          DevicePtr<std::byte> to, size_t width, size_t pitch, size_t rows) {
  auto* const other = dynamic_cast<CudaMemory*>(&from);
  if (other == nullptr) return false;
  const int there = other->device_.ordinal;
  if (there != device_.ordinal && reached_.insert(there).second) {
    Use();
    int reaches = 0;
    cudaDeviceCanAccessPeer(&reaches, device_.ordinal, there);
    if (reaches != 0) cudaDeviceEnablePeerAccess(there, 0);
    cudaGetLastError();  // somebody else may have asked for it
  }
  WaitFor(other);
  const bool whole = rows == 1 || width == pitch;
  Must(whole ? cudaMemcpyAsync(Raw(to), Raw(source), width * rows, cudaMemcpyDefault, stream_)
             : cudaMemcpy2DAsync(Raw(to), pitch, Raw(source), pitch, width, rows,
                                 cudaMemcpyDefault, stream_),
       "a copy between GPUs");
  other->WaitFor(this);
  return true;
}

void CudaMemory::Zero(DevicePtr<std::byte> to, size_t bytes) {
  Use();
  if (bytes > 0) Must(cudaMemsetAsync(Raw(to), 0, bytes, stream_), "fill");
}

void CudaMemory::Synchronize() {
  Use();
  Must(cudaStreamSynchronize(stream_), "a kernel");
}

Result<std::unique_ptr<HostLane>> CudaMemory::OpenLane(size_t bytes) {
  REPRISE_ASSIGN(std::unique_ptr<CudaLane> lane, CudaLane::Open(device_.ordinal, stream_, bytes));
  return std::unique_ptr<HostLane>(std::move(lane));
}

DeviceMemory::Capacity CudaMemory::capacity() const {
  Use();
  Capacity capacity;
  Must(cudaMemGetInfo(&capacity.free, &capacity.total), "asking for memory");
  capacity.free = std::min(capacity.free, Left());
  capacity.total = std::min(capacity.total, limit_);
  return capacity;
}

}  // namespace reprise
