// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"

namespace reprise {

// Memory for objects of one type, side by side: a loop over hundreds of them finds them in few
// pages, whatever else was allocated between any two. The place that was given back last is the
// first to be taken again. As many places stay as were ever taken at a time. AddressSanitizer knows
// which of them are.
//
// Thread safety: all. Costs: O(1), but for every 64th place that is new.
template <typename T>
class Slabs {
 public:
  static void* Take() {
    Slabs& slabs = All();
    std::lock_guard lock(slabs.mutex_);
    if (slabs.free_ == nullptr) slabs.Add();
    Free* const place = std::exchange(slabs.free_, slabs.free_->next);
    ASAN_UNPOISON_MEMORY_REGION(place + 1, kBytes - sizeof(Free));
    return place;
  }
  static void Give(void* place) {
    Slabs& slabs = All();
    std::lock_guard lock(slabs.mutex_);
    slabs.Push(place);
  }

 private:
  struct Free {
    Free* next;
  };
  static constexpr size_t kLine = 64;  // of the processor's cache
  // An odd number of lines: else the same line of each would be in a few places of that cache.
  static constexpr size_t kBytes = ((sizeof(T) + kLine - 1) / kLine | 1) * kLine;
  static constexpr size_t kObjects = 64;

  // Never destroyed: objects may outlive all else.
  static Slabs& All() {
    static Slabs* const all = new Slabs();
    return *all;
  }
  void Add() {
    constexpr std::align_val_t kAlign{std::max(kLine, alignof(T))};
    auto* const slab = static_cast<std::byte*>(::operator new(kObjects * kBytes, kAlign));
    for (size_t i = kObjects; i > 0; --i) Push(slab + (i - 1) * kBytes);
  }
  void Push(void* place) {
    free_ = new (place) Free{free_};
    ASAN_POISON_MEMORY_REGION(free_ + 1, kBytes - sizeof(Free));
  }

  std::mutex mutex_;
  Free* free_ = nullptr;
};

// The same for std::allocate_shared.
template <typename T>
struct SlabAllocator {
  using value_type = T;

  SlabAllocator() = default;
  template <typename U>
  SlabAllocator(const SlabAllocator<U>&) {}  // NOLINT: allocators convert

  T* allocate(size_t count) {
    CHECK(count == 1);
    return static_cast<T*>(Slabs<T>::Take());
  }
  void deallocate(T* place, size_t) { Slabs<T>::Give(place); }
  friend bool operator==(const SlabAllocator&, const SlabAllocator&) { return true; }
};

}  // namespace reprise
