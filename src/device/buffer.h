// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace reprise {

// Zeroed memory for weights and state, aligned to 64 bytes (2 MiB when large, with transparent huge
// pages asked for: streaming weights through 4 KiB pages costs a tenth of decode speed). Pages
// become resident on first touch. Move-only.
class Buffer {
 public:
  Buffer() = default;
  // Fails with kResourceExhausted and the size if the address space is refused.
  static Result<Buffer> Allocate(size_t bytes);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Gives the pages back to the system; the contents become zero.
  void Discard();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes of the mapping that data_ lies in
  std::byte* mapping_ = nullptr;
};

}  // namespace reprise
