// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device_ptr.h"

// For kernels/, device/ and tests only: the addresses behind DevicePtr. On the host they can be
// read; in the memory of a GPU they mean something to its kernels.
namespace reprise {

struct DeviceAddress {
  template <typename T>
  static T* Of(DevicePtr<T> place) {
    return place.address_;
  }
  template <typename T>
  static DevicePtr<T> At(T* address) {
    return DevicePtr<T>(address);
  }
};

template <typename T>
T* Raw(DevicePtr<T> place) {
  return DeviceAddress::Of(place);
}
template <typename T>
DevicePtr<T> PlaceAt(T* address) {
  return DeviceAddress::At(address);
}

}  // namespace reprise
