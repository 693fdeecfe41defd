// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "device/buffer.h"
#include "device/disguised_memory.h"
#include "device/host_lane.h"
#include "device/raw.h"

namespace reprise {

// For tests: memory of this process whose lanes copy as late as they may, one copy each time that
// somebody asks how far they are. What is to be copied in is noise until then. So whoever frees,
// overwrites or reads what a copy still needs gives a wrong answer, as on a GPU.
class LateMemory final : public DisguisedMemory, public LaneSource {
 public:
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Result<std::unique_ptr<HostLane>> OpenLane(size_t bytes) override {
    REPRISE_ASSIGN(Buffer buffer, Buffer::Allocate(bytes));
    return std::unique_ptr<HostLane>(std::make_unique<Lane>(std::move(buffer)));
  }

 private:
  class Lane final : public HostLane {
   public:
    explicit Lane(Buffer buffer) : buffer_(std::move(buffer)), data_(buffer_.data()) {}

    std::byte* data() const override { return data_; }
    size_t size() const override { return buffer_.size(); }
    bool beside() const override { return true; }
    void Follow() override {}
    void Out(std::byte* to, DevicePtr<const std::byte> from, size_t bytes) override {
      copies_.push_back({to, Raw(from), bytes});
      ++asked_;
    }
    void In(DevicePtr<std::byte> to, const std::byte* from, size_t bytes) override {
      std::memset(Raw(to), 0xA5, bytes);
      copies_.push_back({Raw(to), from, bytes});
      ++asked_;
    }
    void Join() override {
      while (!copies_.empty()) CopyOne();
    }
    uint64_t Mark() override { return asked_; }
    bool Reached(uint64_t mark) override {
      if (asked_ - copies_.size() >= mark) return true;
      CopyOne();
      return false;
    }

   private:
    struct One {
      std::byte* to;
      const std::byte* from;
      size_t bytes;
    };
    void CopyOne() {
      const One one = copies_.front();
      copies_.pop_front();
      std::memcpy(one.to, one.from, one.bytes);
    }

    Buffer buffer_;
    std::byte* const data_;
    std::deque<One> copies_;
    uint64_t asked_ = 0;
  };
};

}  // namespace reprise
