// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace reprise {
namespace {

Status FileError(const std::string& path, const char* verb) {
  const std::string reason = std::strerror(errno);
  const std::string message = "cannot " + std::string(verb) + " " + path + ": " + reason;
  return errno == ENOENT ? NotFound(message) : Internal(message);
}

// Closes on every path out of a function.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return FileError(path, "open");
  struct stat st {};
  if (::fstat(file.fd, &st) != 0) return FileError(path, "read the size of");
  if (!S_ISREG(st.st_mode)) return InvalidArgument(path + " is not a regular file");
  const size_t size = static_cast<size_t>(st.st_size);
  if (size == 0) return DataLoss(path + " is empty");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) return FileError(path, "map");
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Release(size_t offset, size_t size) const {
  CHECK(offset <= size_ && size <= size_ - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::string& path, size_t size_max) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return FileError(path, "open");
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(file.fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "read");
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > size_max) {
      return ResourceExhausted(path + " is larger than the limit of " + std::to_string(size_max) +
                               " bytes");
    }
  }
}

Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = path + ".partial";
  const Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) return FileError(temporary, "create");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(file.fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(temporary, "write");
    done += static_cast<size_t>(count);
  }
  if (::fsync(file.fd) != 0) return FileError(temporary, "flush");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "replace");
  return OkStatus();
}

}  // namespace reprise
