// SPDX-License-Identifier: Apache-2.0
#include "kernels/split/split_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/raw.h"

namespace reprise {

struct SplitMemory::Range {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  std::vector<DeviceBuffer> places;  // by device
};

class SplitMemory::Owner final : public DeviceBuffer::Owner {
 public:
  Owner(SplitMemory* memory, std::unique_ptr<Range> range)
      : memory_(memory), range_(std::move(range)) {}
  ~Owner() override {
    memory_->whereabouts_.Forget(range_->begin, range_->bytes);
    if (memory_->changed_) memory_->changed_(range_->begin, range_->bytes);
    if (memory_->last_ == range_.get()) memory_->last_ = nullptr;
    memory_->ranges_.erase(range_->begin);
    ::munmap(const_cast<std::byte*>(range_->begin), range_->bytes);
  }

 private:
  SplitMemory* const memory_;
  const std::unique_ptr<Range> range_;
};

SplitMemory::SplitMemory(std::vector<Part> parts)
    : parts_(std::move(parts)), whereabouts_(int(parts_.size())) {
  CHECK(!parts_.empty() && parts_.size() <= 64);
  for (const Part& part : parts_) peers_.push_back(dynamic_cast<PeerMemory*>(part.memory));
}

Result<DeviceBuffer> SplitMemory::MakeRange(size_t bytes, const Make& make) {
  auto range = std::make_unique<Range>();
  range->bytes = std::max<size_t>(bytes, 1);
  for (const Part& part : parts_) {
    REPRISE_ASSIGN(DeviceBuffer place, make(*part.memory));
    range->places.push_back(std::move(place));
  }
  void* const addresses = ::mmap(nullptr, range->bytes, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) {
    return ResourceExhausted("cannot reserve " + std::to_string(bytes >> 20) +
                             " MiB of addresses");
  }
  range->begin = static_cast<const std::byte*>(addresses);
  ranges_[range->begin] = range.get();
  return DeviceBuffer(std::make_unique<Owner>(this, std::move(range)),
                      PlaceAt(static_cast<std::byte*>(addresses)), bytes);
}

Result<DeviceBuffer> SplitMemory::Allocate(size_t bytes) {
  return MakeRange(bytes, [&](DeviceMemory& memory) { return memory.Allocate(bytes); });
}

Result<DeviceBuffer> SplitMemory::Reserve(size_t bytes) {
  return MakeRange(bytes, [&](DeviceMemory& memory) { return memory.Reserve(bytes); });
}

const SplitMemory::Range* SplitMemory::Find(DevicePtr<const std::byte> address) const {
  const std::byte* const at = Raw(address);
  const auto inside = [&](const Range* range) {
    return range != nullptr && range->begin <= at && at <= range->begin + range->bytes;
  };
  if (inside(last_) && at < last_->begin + last_->bytes) return last_;
  const auto behind = ranges_.upper_bound(at);
  if (behind == ranges_.begin() || !inside(std::prev(behind)->second)) return nullptr;
  return last_ = std::prev(behind)->second;
}

DevicePtr<std::byte> SplitMemory::Place(int device,
                                        DevicePtr<const std::byte> address) const {
  if (!address) return nullptr;
  const Range* const range = Find(address);
  CHECK(range != nullptr);
  return range->places[size_t(device)].data() + (Raw(address) - range->begin);
}

// One piece where it is one, and else all that lies between, as each copy may cost a call of the
// system.
void SplitMemory::CopyRuns(int from, DevicePtr<const std::byte> source_at, int to,
                           DevicePtr<std::byte> target_at, size_t width, size_t pitch,
                           size_t rows) {
  DeviceMemory& source = part(from);
  DeviceMemory& target = part(to);
  ++gathered_.copies;
  gathered_.bytes += width * rows;
  if (PeerMemory* const peer = peers_[size_t(to)];
      peer != nullptr && peer->TakeRows(source, source_at, target_at, width, pitch, rows)) {
    return;
  }
  const size_t span = (rows - 1) * pitch + width;
  std::vector<std::byte> between(span);
  source.Download(between.data(), source_at, span);
  if (rows > 1 && width != pitch) {
    std::vector<std::byte> there(span);
    target.Download(there.data(), target_at, span);
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(there.data() + row * pitch, between.data() + row * pitch, width);
    }
    between = std::move(there);
  }
  target.Upload(target_at, between.data(), span);
}

void SplitMemory::Gather(const ConstRows& x, DeviceSet where) {
  if (x.rows == 0 || x.cols == 0) return;
  const size_t floats = x.rows == 1 || x.stride == 0 ? size_t(x.cols)
                                                     : size_t((x.rows - 1) * x.stride + x.cols);
  for (const ConstRows& stranger : whereabouts_.Strangers(Raw(x.data), floats * sizeof(float), x)) {
    Gather(stranger, whereabouts_.all());
  }
  for (const Whereabouts::Part& part : whereabouts_.PartsOf(x)) {
    const DeviceSet missing = where & ~part.where;
    if (missing == 0) continue;
    const ConstRows rows = {x.data + (part.row_begin * x.stride + part.col_begin),
                            part.row_end - part.row_begin, part.col_end - part.col_begin,
                            x.stride};
    const int from = std::countr_zero(part.where);
    const auto place = rows.data.As<const std::byte>();
    for (int device = 0; device < count(); ++device) {
      if ((missing >> device & 1) == 0) continue;
      CopyRuns(from, Place(from, place), device, Place(device, place),
               size_t(rows.cols) * sizeof(float), size_t(rows.stride) * sizeof(float),
               size_t(rows.rows));
    }
    whereabouts_.Set(rows, part.where | missing);
  }
}

void SplitMemory::Settle(DevicePtr<const std::byte> begin, size_t bytes, DeviceSet where) {
  for (const ConstRows& rows : whereabouts_.Strangers(Raw(begin), bytes, ConstRows())) {
    Gather(rows, where);
  }
}

void SplitMemory::Changed(DevicePtr<std::byte> begin, size_t bytes) {
  whereabouts_.Forget(Raw(begin), bytes);
  Settle(begin, bytes, whereabouts_.all());
  if (changed_) changed_(Raw(begin), bytes);
}

Status SplitMemory::Commit(DevicePtr<std::byte> begin, size_t bytes) {
  for (int device = 0; device < count(); ++device) {
    REPRISE_TRY(part(device).Commit(On(device, begin), bytes));
  }
  return OkStatus();
}

void SplitMemory::Discard(DevicePtr<std::byte> begin, size_t bytes) {
  Changed(begin, bytes);
  for (int device = 0; device < count(); ++device) part(device).Discard(On(device, begin), bytes);
}

void SplitMemory::Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Changed(to, bytes);
  for (int device = 0; device < count(); ++device) {
    part(device).Upload(On(device, to), from, bytes);
  }
}

void SplitMemory::Download(void* to, DevicePtr<const std::byte> from, size_t bytes) {
  if (bytes == 0) return;
  Settle(from, bytes, 1);
  part(0).Download(to, On(0, from), bytes);
}

void SplitMemory::Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) {
  if (bytes == 0) return;
  Settle(from, bytes, whereabouts_.all());
  Changed(to, bytes);
  for (int device = 0; device < count(); ++device) {
    part(device).Copy(On(device, to), On(device, from), bytes);
  }
}

void SplitMemory::Zero(DevicePtr<std::byte> to, size_t bytes) {
  if (bytes == 0) return;
  Changed(to, bytes);
  for (int device = 0; device < count(); ++device) part(device).Zero(On(device, to), bytes);
}

void SplitMemory::Synchronize() {
  for (const Part& part : parts_) part.memory->Synchronize();
}

DeviceMemory::Capacity SplitMemory::capacity() const {
  Capacity least;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Capacity one = parts_[i].memory->capacity();
    const auto sharing = static_cast<size_t>(parts_[i].sharing);
    least.total = i == 0 ? one.total / sharing : std::min(least.total, one.total / sharing);
    least.free = i == 0 ? one.free / sharing : std::min(least.free, one.free / sharing);
  }
  return {least.total * parts_.size(), least.free * parts_.size()};
}

}  // namespace reprise
