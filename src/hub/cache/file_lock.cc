// SPDX-License-Identifier: Apache-2.0
#include "hub/cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

namespace reprise::hub {
namespace {

constexpr std::chrono::milliseconds kPause{50};

// Whether the path still names the file that was locked: some versions of filelock remove it.
bool IsStillThere(int fd, const std::string& path) {
  struct stat own {
  }, named{};
  return ::fstat(fd, &own) == 0 && ::stat(path.c_str(), &named) == 0 &&
         own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

}  // namespace

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::optional<FileLock>> FileLock::Try(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  // Users of one cache wait for one another, too.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd < 0) return Internal("the lock " + path + " cannot be made: " + std::strerror(errno));
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    if (IsStillThere(fd, path)) return std::optional<FileLock>(std::move(lock));
    return std::optional<FileLock>();
  }
  if (errno == EWOULDBLOCK || errno == EINTR || errno == EACCES) return std::optional<FileLock>();
  // A file system without locks: the download is checked in any case, it may just be done twice.
  return std::optional<FileLock>(std::move(lock));
}

Result<FileLock> FileLock::Take(const std::string& path, const std::atomic<bool>* cancelled,
                                const std::function<void()>& on_wait) {
  for (bool waited = false;; waited = true) {
    REPRISE_ASSIGN(std::optional<FileLock> lock, Try(path));
    if (lock) return std::move(*lock);
    if (!waited && on_wait) on_wait();
    if (cancelled != nullptr && cancelled->load()) return Cancelled("interrupted");
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace reprise::hub
