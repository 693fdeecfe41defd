// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise {

// The data of a file of tensors, written piece by piece in an order and with sizes that the head
// has announced: a model of any size is written through one buffer. The file appears under its
// name only when it is whole (path.partial until then).
class TensorStream {
 public:
  // Writes `head`, padded with zeros to `alignment`; every tensor is padded likewise.
  static Result<TensorStream> Create(const std::string& path, std::span<const std::byte> head,
                                     std::vector<uint64_t> sizes, uint64_t alignment);
  TensorStream(TensorStream&&) noexcept;
  TensorStream& operator=(TensorStream&&) noexcept;
  ~TensorStream();  // removes what was not finished

  // The next bytes, of the current tensor and those after it.
  // REQUIRES: no more in all than was announced.
  Status Append(std::span<const std::byte> bytes);
  // REQUIRES: all that was announced has been appended.
  Status Finish();

 private:
  class File;
  TensorStream(std::unique_ptr<File> file, std::vector<uint64_t> sizes, uint64_t alignment);
  Status CloseTensors();

  std::unique_ptr<File> file_;
  std::vector<uint64_t> sizes_;
  uint64_t alignment_;
  size_t current_ = 0;  // tensor
  uint64_t done_ = 0;   // bytes of it
};

}  // namespace reprise
