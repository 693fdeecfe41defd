// SPDX-License-Identifier: Apache-2.0
#include "device/joined/joined_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/raw.h"

namespace reprise {

// Units and where they lie. Their addresses have nothing behind them: whoever follows one faults.
struct JoinedMemory::Units {
  // What one memory has of them: [count, bytes].
  struct Part {
    size_t bytes = 0;
    DeviceBuffer buffer;
    std::vector<uint32_t> users;  // of each page, as far as pages were used: units committed
  };

  UnitShape shape;             // with all places
  std::vector<size_t> begins;  // of each piece, in a unit
  std::vector<Part> parts;     // by memory
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

class JoinedMemory::Owner final : public DeviceBuffer::Owner {
 public:
  Owner(JoinedMemory* memory, std::unique_ptr<Units> units)
      : memory_(memory), units_(std::move(units)) {}
  ~Owner() override {
    memory_->units_.erase(units_->begin);
    ::munmap(const_cast<std::byte*>(units_->begin), units_->bytes);
  }

 private:
  JoinedMemory* const memory_;
  const std::unique_ptr<Units> units_;
};

JoinedMemory::JoinedMemory(std::vector<Part> parts) : parts_(std::move(parts)) {
  CHECK(!parts_.empty());
  rest_ = parts_[0].memory;
}

JoinedMemory::~JoinedMemory() { CHECK(units_.empty()); }

Result<DeviceBuffer> JoinedMemory::ReserveUnits(const UnitShape& shape, size_t count) {
  auto units = std::make_unique<Units>();
  units->shape = shape;
  if (shape.pieces.empty()) units->shape.pieces = {{0, shape.bytes}};
  units->parts.resize(parts_.size());
  size_t total = 0;
  for (UnitShape::Piece& piece : units->shape.pieces) {
    size_t& bytes = units->parts[size_t(piece.memory)].bytes;
    if (piece.place == UnitShape::Piece::kBehind) piece.place = bytes;
    bytes = std::max(bytes, piece.place + piece.bytes);
    units->begins.push_back(total);
    total += piece.bytes;
  }
  for (Units::Part& part : units->parts) part.bytes = (part.bytes + 63) / 64 * 64;
  CHECK(total == shape.bytes && total > 0 && count > 0);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Units::Part& part = units->parts[i];
    const size_t page = parts_[i].memory->page_bytes();
    const size_t bytes = (part.bytes * count + page - 1) / page * page;
    if (bytes == 0) continue;
    REPRISE_ASSIGN(part.buffer, parts_[i].memory->Reserve(bytes));
  }
  units->bytes = shape.bytes * count;
  void* const addresses =
      ::mmap(nullptr, units->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) {
    return ResourceExhausted("cannot reserve " + std::to_string(units->bytes >> 20) +
                             " MiB of addresses");
  }
  units->begin = static_cast<const std::byte*>(addresses);
  units_[units->begin] = units.get();
  const size_t bytes = units->bytes;
  return DeviceBuffer(std::make_unique<Owner>(this, std::move(units)),
                      PlaceAt(static_cast<std::byte*>(addresses)), bytes);
}

const JoinedMemory::Units* JoinedMemory::UnitsOf(const std::byte* address) const {
  const auto behind = units_.upper_bound(address);
  if (behind == units_.begin()) return nullptr;
  const Units* const units = std::prev(behind)->second;
  return address < units->begin + units->bytes ? units : nullptr;
}

DevicePtr<std::byte> JoinedMemory::PlaceIn(int memory, DevicePtr<std::byte> units) const {
  const Units* const found = UnitsOf(Raw(units));
  CHECK(found != nullptr && found->begin == Raw(units));
  return found->parts[size_t(memory)].buffer.data();
}

const UnitShape* JoinedMemory::ShapeOf(DevicePtr<std::byte> units) const {
  const Units* const found = UnitsOf(Raw(units));
  return found == nullptr ? nullptr : &found->shape;
}

size_t JoinedMemory::UnitBytesIn(int memory, DevicePtr<std::byte> units) const {
  const Units* const found = UnitsOf(Raw(units));
  CHECK(found != nullptr);
  return found->parts[size_t(memory)].bytes;
}

JoinedMemory::Run JoinedMemory::RunAt(DevicePtr<const std::byte> at, size_t bytes) const {
  const std::byte* const address = Raw(at);
  const Units* const units = UnitsOf(address);
  if (units == nullptr) return {kRest, PlaceAt(const_cast<std::byte*>(address)), bytes};
  const auto offset = static_cast<size_t>(address - units->begin);
  const size_t unit = offset / units->shape.bytes;
  size_t inside = offset % units->shape.bytes;
  const auto behind = std::upper_bound(units->begins.begin(), units->begins.end(), inside);
  const auto index = size_t(behind - units->begins.begin()) - 1;
  inside -= units->begins[index];
  const UnitShape::Piece& piece = units->shape.pieces[index];
  const Units::Part& part = units->parts[size_t(piece.memory)];
  const size_t place = unit * part.bytes + piece.place + inside;
  return {piece.memory, part.buffer.data() + int64_t(place), std::min(bytes, piece.bytes - inside)};
}

void JoinedMemory::ForEachRun(DevicePtr<const std::byte> at, size_t bytes,
                              const std::function<void(const Run&, size_t)>& visit) const {
  for (size_t done = 0; done < bytes;) {
    const Run run = RunAt(at + int64_t(done), bytes - done);
    visit(run, done);
    done += run.bytes;
  }
}

// A page that another unit has is there already.
Status JoinedMemory::Commit(DevicePtr<std::byte> begin, size_t bytes) {
  const Units* const found = UnitsOf(Raw(begin));
  if (found == nullptr) return rest_->Commit(begin, bytes);
  Status status;
  ForEachRun(begin, bytes, [&](const Run& run, size_t) {
    if (status.ok()) status = MemoryOf(run).Commit(run.place, run.bytes);
  });
  Units& units = *units_.find(found->begin)->second;
  ForEachRun(begin, bytes, [&](const Run& run, size_t) {
    Units::Part& part = units.parts[size_t(run.memory)];
    const size_t page_bytes = MemoryOf(run).page_bytes();
    const auto offset = static_cast<size_t>(Raw(run.place) - Raw(part.buffer.data()));
    const size_t last = (offset + run.bytes - 1) / page_bytes;
    if (part.users.size() <= last) part.users.resize(last + 1);
    for (size_t page = offset / page_bytes; page <= last; ++page) ++part.users[page];
  });
  if (!status.ok()) Discard(begin, bytes);
  return status;
}

void JoinedMemory::Discard(DevicePtr<std::byte> begin, size_t bytes) {
  const Units* const found = UnitsOf(Raw(begin));
  if (found == nullptr) return rest_->Discard(begin, bytes);
  Units& units = *units_.find(found->begin)->second;
  ForEachRun(begin, bytes, [&](const Run& run, size_t) {
    Units::Part& part = units.parts[size_t(run.memory)];
    DeviceMemory& memory = MemoryOf(run);
    const size_t page_bytes = memory.page_bytes();
    const auto offset = static_cast<size_t>(Raw(run.place) - Raw(part.buffer.data()));
    const size_t last = (offset + run.bytes - 1) / page_bytes;
    for (size_t page = offset / page_bytes; page <= last; ++page) {
      CHECK(page < part.users.size() && part.users[page] > 0);
      if (--part.users[page] == 0) {
        memory.Discard(part.buffer.data() + int64_t(page * page_bytes), page_bytes);
      }
    }
  });
}

void JoinedMemory::Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) {
  ForEachRun(to, bytes, [&](const Run& run, size_t done) {
    MemoryOf(run).Upload(run.place, static_cast<const std::byte*>(from) + done,
                                              run.bytes);
  });
}

void JoinedMemory::Download(void* to, DevicePtr<const std::byte> from, size_t bytes) {
  ForEachRun(from, bytes, [&](const Run& run, size_t done) {
    MemoryOf(run).Download(static_cast<std::byte*>(to) + done, run.place,
                                                run.bytes);
  });
}

void JoinedMemory::Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) {
  ForEachRun(to, bytes, [&](const Run& outer, size_t begin) {
    for (size_t done = 0; done < outer.bytes;) {
      const Run run = RunAt(from + int64_t(begin + done), outer.bytes - done);
      DeviceMemory& source = MemoryOf(run);
      DeviceMemory& target = MemoryOf(outer);
      const DevicePtr<std::byte> place = outer.place + int64_t(done);
      if (&source == &target) {
        target.Copy(place, run.place, run.bytes);
      } else {
        std::vector<std::byte> bytes_between(run.bytes);
        source.Download(bytes_between.data(), run.place, run.bytes);
        target.Upload(place, bytes_between.data(), run.bytes);
      }
      done += run.bytes;
    }
  });
}

void JoinedMemory::Zero(DevicePtr<std::byte> to, size_t bytes) {
  ForEachRun(to, bytes, [&](const Run& run, size_t) {
    MemoryOf(run).Zero(run.place, run.bytes);
  });
}

bool JoinedMemory::copies_by_caller() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.memory->copies_by_caller(); });
}

void JoinedMemory::Synchronize() {
  for (const Part& part : parts_) part.memory->Synchronize();
}

uint64_t JoinedMemory::Room(const Free& free) const {
  uint64_t room = UINT64_MAX;
  for (size_t i = 0; i < parts_.size(); ++i) {
    double share = 0;
    for (size_t j = 0; j < parts_.size(); ++j) {
      if (parts_[j].store == parts_[i].store)
        share += shares_.empty() ? double(j == 0) : shares_[j];
    }
    if (share > 0) room = std::min(room, uint64_t(double(free(*parts_[i].memory)) / share));
  }
  return room;
}

DeviceMemory::Capacity JoinedMemory::capacity() const {
  return {size_t(Room([](const DeviceMemory& memory) { return memory.capacity().total; })),
          size_t(Room([](const DeviceMemory& memory) { return memory.capacity().free; }))};
}

}  // namespace reprise
