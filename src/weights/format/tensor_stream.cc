// SPDX-License-Identifier: Apache-2.0
#include "weights/format/tensor_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace reprise {

// A buffered file that is removed unless committed.
class TensorStream::File {
 public:
  explicit File(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
    if (created_ && !committed_) ::unlink(partial_.c_str());
  }

  Status Open() {
    fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    created_ = fd_ >= 0;
    return created_ ? OkStatus() : Failed("create");
  }

  Status Write(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
      const size_t take = std::min(bytes.size(), kBufferBytes - buffer_.size());
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(take));
      bytes = bytes.subspan(take);
      if (buffer_.size() == kBufferBytes) REPRISE_TRY(Flush());
    }
    return OkStatus();
  }

  Status PadTo(uint64_t alignment) {
    const std::vector<std::byte> zeros((alignment - size_ % alignment) % alignment);
    return Write(zeros);
  }

  Status Commit() {
    REPRISE_TRY(Flush());
    if (::close(std::exchange(fd_, -1)) != 0) return Failed("write");
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) return Failed("rename");
    committed_ = true;
    return OkStatus();
  }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  Status Failed(const char* verb) const {
    return Internal("cannot " + std::string(verb) + " " + partial_ + ": " + std::strerror(errno));
  }

  Status Flush() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t count = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("write");
      done += static_cast<size_t>(count);
    }
    buffer_.clear();
    return OkStatus();
  }

  const std::string path_, partial_;
  int fd_ = -1;
  bool created_ = false;
  bool committed_ = false;
  uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

TensorStream::TensorStream(std::unique_ptr<File> file, std::vector<uint64_t> sizes,
                           uint64_t alignment)
    : file_(std::move(file)), sizes_(std::move(sizes)), alignment_(alignment) {}
TensorStream::TensorStream(TensorStream&&) noexcept = default;
TensorStream& TensorStream::operator=(TensorStream&&) noexcept = default;
TensorStream::~TensorStream() = default;

Result<TensorStream> TensorStream::Create(const std::string& path, std::span<const std::byte> head,
                                          std::vector<uint64_t> sizes, uint64_t alignment) {
  auto file = std::make_unique<File>(path);
  REPRISE_TRY(file->Open());
  REPRISE_TRY(file->Write(head));
  REPRISE_TRY(file->PadTo(alignment));
  TensorStream stream(std::move(file), std::move(sizes), alignment);
  REPRISE_TRY(stream.CloseTensors());
  return stream;
}

// Pads and steps over every tensor that is complete; empty ones are so from the start.
Status TensorStream::CloseTensors() {
  while (current_ < sizes_.size() && done_ == sizes_[current_]) {
    REPRISE_TRY(file_->PadTo(alignment_));
    ++current_;
    done_ = 0;
  }
  return OkStatus();
}

Status TensorStream::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CHECK(current_ < sizes_.size());
    const uint64_t take = std::min<uint64_t>(bytes.size(), sizes_[current_] - done_);
    REPRISE_TRY(file_->Write(bytes.first(take)));
    bytes = bytes.subspan(take);
    done_ += take;
    REPRISE_TRY(CloseTensors());
  }
  return OkStatus();
}

Status TensorStream::Finish() {
  CHECK(current_ == sizes_.size());
  return file_->Commit();
}

}  // namespace reprise
