// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace reprise {

// A whole file mapped read-only. Move-only; unmaps on destruction.
//
// Pages are read on first touch. Release() tells the kernel that a range will not be needed again,
// so that weights which were repacked elsewhere do not count twice in resident memory.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Drops the resident pages that lie wholly inside [offset, offset + size). Reading them again is
  // allowed and fetches them from the file.
  void Release(size_t offset, size_t size) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as a string; fails with kResourceExhausted beyond `size_max`.
Result<std::string> ReadFile(const std::string& path, size_t size_max);

// Writes a new file beside `path` and renames it into place, so that a reader never sees half of
// it.
Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace reprise
