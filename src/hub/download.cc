// SPDX-License-Identifier: Apache-2.0
#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "hub/cache/digest.h"
#include "hub/cache/file_lock.h"

namespace reprise::hub {
namespace {

constexpr uint64_t kProgressBytes = 1 << 20;  // less is no progress: retries go on counting
constexpr int kWrongDigestsMax = 2;

// The part of a file that is there, with the digest so far.
class Partial {
 public:
  Partial(std::string path, const HubFile& file) : path_(std::move(path)), file_(file) {}
  ~Partial() {
    if (fd_ >= 0) ::close(fd_);
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  uint64_t bytes() const { return bytes_; }
  bool complete() const { return bytes_ == file_.bytes; }

  // Reads what an earlier attempt has left.
  Status Open(const std::atomic<bool>* cancelled) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return Failed("create");
    digest_ = std::make_unique<Digest>(file_.digest, file_.bytes);
    std::vector<char> buffer(1 << 20);
    for (;;) {
      if (cancelled != nullptr && cancelled->load()) return Cancelled("interrupted");
      const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("read");
      if (count == 0) return OkStatus();
      bytes_ += static_cast<uint64_t>(count);
      // Longer than the file: not what was left by a download of it.
      if (bytes_ > file_.bytes) return Restart();
      digest_->Add({buffer.data(), static_cast<size_t>(count)});
    }
  }

  Status Append(std::string_view bytes) {
    if (bytes.size() > file_.bytes - bytes_) {
      return Internal("more came than the file has");
    }
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::pwrite(fd_, bytes.data() + done, bytes.size() - done,
                                     static_cast<off_t>(bytes_ + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("write");
      done += static_cast<size_t>(count);
    }
    digest_->Add(bytes);
    bytes_ += bytes.size();
    return OkStatus();
  }

  Status Restart() {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) return Failed("empty");
    bytes_ = 0;
    digest_ = std::make_unique<Digest>(file_.digest, file_.bytes);
    return OkStatus();
  }

  // REQUIRES: complete(). Whether the digest is right; Restart is next, or Keep.
  bool IsRight() { return digest_->Finish() == file_.digest; }

  // Gives the file its name.
  Status Keep(const std::string& blob) {
    if (::fsync(fd_) != 0) return Failed("flush");
    if (::rename(path_.c_str(), blob.c_str()) != 0) return Failed("rename");
    const std::string folder = std::filesystem::path(blob).parent_path().string();
    const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd >= 0) {
      ::fsync(folder_fd);
      ::close(folder_fd);
    }
    return OkStatus();
  }

 private:
  // Not kInternal: another try would not help.
  Status Failed(const char* what) const {
    const int error = errno;
    const std::string text =
        std::string("cannot ") + what + " " + path_ + ": " + std::strerror(error);
    return error == ENOSPC || error == EDQUOT
               ? ResourceExhausted(text + "; make room, the same command continues")
               : FailedPrecondition(text);
  }

  const std::string path_;
  const HubFile& file_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  std::unique_ptr<Digest> digest_;
};

// The first byte of "bytes 100-199/1000", if the rest says the same as the request and the file.
bool IsWantedRange(const std::string* header, uint64_t begin, uint64_t total) {
  if (header == nullptr || !header->starts_with("bytes ")) return false;
  const std::string_view text = std::string_view(*header).substr(6);
  uint64_t first = 0, last = 0, all = 0;
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, first);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != '-') return false;
  result = std::from_chars(result.ptr + 1, end, last);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != '/') return false;
  result = std::from_chars(result.ptr + 1, end, all);
  return result.ec == std::errc() && result.ptr == end && first == begin && last + 1 == total &&
         all == total;
}

class FileDownload {
 public:
  FileDownload(const Download& download, const HubFile& file, Partial* partial)
      : download_(download),
        file_(file),
        partial_(*partial),
        hub_(download.settings, download.say),
        retries_(download.settings, download.say) {}

  Status Run() {
    int wrong = 0;
    uint64_t reached = partial_.bytes();
    Report();
    for (;;) {
      const Status status = partial_.complete() ? OkStatus() : Attempt();
      if (status.ok() && partial_.complete()) {
        if (partial_.IsRight()) return OkStatus();
        REPRISE_TRY(partial_.Restart());
        reached = 0;
        Report();
        if (++wrong == kWrongDigestsMax) {
          return DataLoss("what the hub sends for " + file_.path +
                          " is not the file that its list names (the checksum is another)");
        }
        if (download_.say) download_.say(file_.path + " came damaged; fetching it again");
        continue;
      }
      if (partial_.bytes() >= reached + kProgressBytes) {
        reached = partial_.bytes();
        retries_.Progressed();
      }
      reached = std::min(reached, partial_.bytes());
      REPRISE_TRY(retries_.Wait(
          status.ok() ? Internal("the answer for " + file_.path + " was too short") : status,
          asked_));
    }
  }

 private:
  void Report() const {
    if (download_.progress) download_.progress(partial_.bytes());
  }

  // One request for what is missing.
  Status Attempt() {
    HttpRequest request = hub_.FileRequest(download_.name, download_.commit, file_);
    if (partial_.bytes() > 0) request.begin = partial_.bytes();
    asked_.reset();
    BodySink sink;
    sink.on_head = [&](const HttpAnswer& answer) { return Begin(answer); };
    sink.on_body = [&](std::string_view piece) {
      REPRISE_TRY(partial_.Append(piece));
      Report();
      return OkStatus();
    };
    const Result<HttpAnswer> answer = Fetch(request, download_.settings.http, sink);
    return answer.ok() ? OkStatus() : answer.status();
  }

  Status Begin(const HttpAnswer& answer) {
    asked_ = Hub::AskedPause(answer);
    if (answer.head.status == 416) REPRISE_TRY(partial_.Restart());
    REPRISE_TRY(hub_.Check(answer, download_.name));
    REPRISE_TRY(Hub::CheckFile(answer, file_));
    if (answer.head.status == 206 &&
        !IsWantedRange(answer.head.Find("content-range"), partial_.bytes(), file_.bytes)) {
      REPRISE_TRY(partial_.Restart());
      return Internal("another part of the file came than was asked for");
    }
    const uint64_t begin = answer.head.status == 206 ? partial_.bytes() : 0;
    const auto length = answer.head.Number("content-length");
    if (length && *length != file_.bytes - begin) {
      return Internal("the answer for " + file_.path + " has " + std::to_string(*length) +
                      " bytes instead of " + std::to_string(file_.bytes - begin));
    }
    // The whole file although a part was asked for.
    return begin < partial_.bytes() ? partial_.Restart() : OkStatus();
  }

  const Download& download_;
  const HubFile& file_;
  Partial& partial_;
  const Hub hub_;
  Retries retries_;
  std::optional<uint64_t> asked_;
};

}  // namespace

Status DownloadFile(const Download& download, const HubFile& file) {
  const CacheFolder& cache = download.cache;
  const std::string& repo = download.name.repo;
  const std::string blob = cache.BlobPath(repo, file.digest);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(blob).parent_path(), error);
  if (error) return FailedPrecondition("cannot create " + blob + ": " + error.message());
  REPRISE_ASSIGN(
      const FileLock lock,
      FileLock::Take(cache.LockPath(repo, file.digest), download.settings.http.cancelled, [&] {
        if (download.say) {
          download.say("another process fetches " + file.path + "; waiting for it");
        }
      }));
  if (!cache.HasBlob(repo, file)) {
    Partial partial(blob + ".incomplete", file);
    REPRISE_TRY(partial.Open(download.settings.http.cancelled));
    FileDownload run(download, file, &partial);
    REPRISE_TRY(run.Run());
    REPRISE_TRY(partial.Keep(blob));
  }
  if (download.progress) download.progress(file.bytes);
  return cache.Link(repo, download.commit, file);
}

}  // namespace reprise::hub
