// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "device/raw.h"
#include "device/scratch.h"

namespace reprise::cpu {

// `count` objects in the scratch arena, constructed; they end with the memory.
template <typename T>
std::span<T> MakeSpan(ScratchArena& scratch, size_t count) {
  static_assert(std::is_trivially_destructible_v<T>);
  T* memory = Raw(scratch.Take<T>(count));
  std::uninitialized_default_construct_n(memory, count);
  return {memory, count};
}

}  // namespace reprise::cpu
