// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace reprise::hub {

// A lock between processes: flock on a file, as Python's filelock takes it for huggingface_hub, so
// that its processes and ours wait for one another. The file stays when the lock is gone. Released
// by the destructor, or by the kernel when the process ends.
class FileLock {
 public:
  // Waits; `on_wait` is called once, if another process has the lock. Fails with kCancelled, or
  // kInternal if the file cannot be made.
  static Result<FileLock> Take(const std::string& path, const std::atomic<bool>* cancelled,
                               const std::function<void()>& on_wait);
  // Nothing if another process has it.
  static Result<std::optional<FileLock>> Try(const std::string& path);

  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace reprise::hub
