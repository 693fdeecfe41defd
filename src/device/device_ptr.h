// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace reprise {

// A place in the memory of a device, typed and with pointer arithmetic, but not to be read from
// here: weights, state and activations may lie where this processor cannot look. Only kernels/ and
// device/ turn it into a pointer (device/raw.h), which tools/check_layers.py enforces; everybody
// else copies through DeviceMemory. As wide as a pointer, and free.
template <typename T>
class DevicePtr {
 public:
  constexpr DevicePtr() = default;
  constexpr DevicePtr(std::nullptr_t) {}
  // What a pointer converts to: a place of const values, for example.
  template <typename U>
    requires std::is_convertible_v<U*, T*>
  constexpr DevicePtr(const DevicePtr<U>& other) : address_(other.address_) {}

  constexpr explicit operator bool() const { return address_ != nullptr; }
  constexpr friend bool operator==(DevicePtr a, DevicePtr b) { return a.address_ == b.address_; }
  // `count` elements on; a place that is null stays so only for 0.
  constexpr friend DevicePtr operator+(DevicePtr place, int64_t count) {
    return DevicePtr(place.address_ + count);
  }
  // The same place as elements of another type.
  template <typename U>
  DevicePtr<U> As() const {
    return DevicePtr<U>(reinterpret_cast<U*>(address_));
  }

 private:
  template <typename U>
  friend class DevicePtr;
  friend struct DeviceAddress;
  constexpr explicit DevicePtr(T* address) : address_(address) {}

  T* address_ = nullptr;
};

}  // namespace reprise
