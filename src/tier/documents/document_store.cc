// SPDX-License-Identifier: Apache-2.0
#include "tier/documents/document_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace reprise {
namespace {

constexpr std::string_view kEnding = ".doc";
constexpr std::string_view kDraft = ".tmp";
constexpr size_t kIdDigits = 32;
constexpr int64_t kDayMs = 24 * 3600 * 1000;

bool IsNamed(std::string_view file, std::string_view ending) {
  if (file.size() != kIdDigits + ending.size() || !file.ends_with(ending)) return false;
  return file.substr(0, kIdDigits).find_first_not_of("0123456789abcdef") == file.npos;
}

std::string FileOf(const std::string& id) { return id + std::string(kEnding); }

Status ReadAll(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t size = ::read(fd, out.data(), out.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return DataLoss("a document ends too soon");
    out = out.subspan(static_cast<size_t>(size));
  }
  return OkStatus();
}

}  // namespace

Status DocumentStore::Failure(const char* what, int error) const {
  return Internal(fmt::format("{} in {}: {}", what, options_.path, std::strerror(error)));
}

int64_t DocumentStore::WallMs() const {
  if (options_.wall_ms) return options_.wall_ms();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<std::unique_ptr<DocumentStore>> DocumentStore::Open(const DocumentOptions& options,
                                                           const StateKey& key) {
  std::unique_ptr<DocumentStore> store(new DocumentStore(options, key));
  if (::mkdir(options.path.c_str(), 0700) != 0 && errno != EEXIST) {
    return NotFound("the folder " + options.path + " cannot be made: " + std::strerror(errno));
  }
  store->folder_ = OpenFile(::open(options.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (store->folder_.fd() < 0) {
    return NotFound("the folder " + options.path + " cannot be opened: " + std::strerror(errno));
  }
  REPRISE_TRY(store->ReadFolder());
  store->writer_ = std::thread([raw = store.get()] { raw->Loop(); });
  return store;
}

DocumentStore::~DocumentStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

// Takes what an earlier process left, by its heads, oldest first.
Status DocumentStore::ReadFolder() {
  const int again = ::openat(folder_.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = again < 0 ? nullptr : ::fdopendir(again);
  if (dir == nullptr) return Failure("listing documents failed", errno);
  std::vector<std::string> files;
  while (const dirent* one = ::readdir(dir)) {
    if (IsNamed(one->d_name, kDraft)) ::unlinkat(folder_.fd(), one->d_name, 0);
    if (IsNamed(one->d_name, kEnding)) files.emplace_back(one->d_name, kIdDigits);
  }
  ::closedir(dir);
  std::vector<std::pair<DocumentHead, std::string>> found;
  for (std::string& id : files) {
    const OpenFile file(
        ::openat(folder_.fd(), FileOf(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    std::array<std::byte, kDocumentHeadBytes> bytes;
    struct stat facts = {};
    if (file.fd() >= 0 && ::fstat(file.fd(), &facts) == 0 && S_ISREG(facts.st_mode) &&
        ReadAll(file.fd(), bytes).ok()) {
      auto head = DecodeDocumentHead(bytes);
      if (head.ok() && head->file_bytes() == static_cast<uint64_t>(facts.st_size)) {
        found.emplace_back(*head, std::move(id));
        continue;
      }
    }
    ++stats_.damaged;
    ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.created_ms, a.second) < std::tie(b.first.created_ms, b.second);
  });
  std::lock_guard lock(mutex_);
  day_at_ms_ = WallMs();
  day_left_ = static_cast<double>(options_.bytes_day_max);
  for (const auto& [head, id] : found) {
    const bool today = head.created_ms > day_at_ms_ - kDayMs;
    if (today) day_left_ = std::max(0.0, day_left_ - static_cast<double>(head.file_bytes()));
    if (MakeRoom(head.owner, head.file_bytes())) {
      Note(id, head.owner, head.file_bytes());
    } else {
      ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
    }
  }
  return OkStatus();
}

std::string DocumentStore::IdOf(std::string_view owner, std::string_view name) const {
  std::string about(owner);
  about.push_back('\0');
  about.append(name);
  const StateKey::Bytes derived = key_.Derive("document", about);
  std::string id;
  for (size_t i = 0; i < kIdDigits / 2; ++i) id += fmt::format("{:02x}", derived[i]);
  return id;
}

OwnerId DocumentStore::OwnerOf(std::string_view owner) const {
  const StateKey::Bytes derived = key_.Derive("owner", owner);
  OwnerId id;
  std::copy_n(derived.begin(), id.size(), id.begin());
  return id;
}

void DocumentStore::Note(const std::string& id, const OwnerId& owner, uint64_t bytes) {
  Drop(id);  // its file was replaced
  const uint64_t order = ++orders_;
  entries_[id] = {owner, bytes, order};
  ids_[order] = id;
  Held& held = owners_[owner];
  held.bytes += bytes;
  held.ids[order] = id;
  stats_.bytes += bytes;
}

void DocumentStore::Drop(const std::string& id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  const auto held = owners_.find(entry->second.owner);
  held->second.bytes -= entry->second.bytes;
  held->second.ids.erase(entry->second.order);
  if (held->second.ids.empty()) owners_.erase(held);
  stats_.bytes -= entry->second.bytes;
  ids_.erase(entry->second.order);
  entries_.erase(entry);
}

// False: it is too large for ever.
bool DocumentStore::MakeRoom(const OwnerId& owner, uint64_t bytes) {
  if (bytes > options_.owner_bytes_max || bytes > options_.bytes_max) return false;
  const auto remove = [this](std::string id) {
    ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
    Drop(id);
  };
  for (auto held = owners_.find(owner); held != owners_.end(); held = owners_.find(owner)) {
    const Held& has = held->second;
    if (has.bytes + bytes <= options_.owner_bytes_max &&
        has.ids.size() < options_.owner_count_max) {
      break;
    }
    remove(has.ids.begin()->second);
  }
  while (!ids_.empty() && (stats_.bytes + bytes > options_.bytes_max || ids_.size() >= kCountMax)) {
    remove(ids_.begin()->second);
  }
  return true;
}

// As much a day as is allowed, evenly; what was not written is saved up for one day.
bool DocumentStore::MayWrite(uint64_t bytes) {
  if (options_.bytes_day_max == 0) return true;
  const int64_t now = std::max(WallMs(), day_at_ms_);
  const double most = static_cast<double>(options_.bytes_day_max);
  day_left_ = std::min(most, day_left_ + most * static_cast<double>(now - day_at_ms_) / kDayMs);
  day_at_ms_ = now;
  if (day_left_ < static_cast<double>(bytes)) return false;
  day_left_ -= static_cast<double>(bytes);
  return true;
}

void DocumentStore::Put(std::string_view owner, std::string_view name, std::string content) {
  const size_t bytes = content.size();
  Waiting waiting{IdOf(owner, name), OwnerOf(owner), std::move(content)};
  {
    std::lock_guard lock(mutex_);
    if (bytes > kDocumentBytesMax || queue_bytes_ + bytes > kQueueBytes || stop_ ||
        WallMs() < off_until_ms_) {
      ++stats_.left_out;
      return;
    }
    queue_bytes_ += bytes;
    queue_.push_back(std::move(waiting));
  }
  changed_.notify_all();
}

void DocumentStore::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Waiting document = std::move(queue_.front());
    queue_.pop_front();
    writing_ = &document;
    const uint64_t bytes = kDocumentHeadBytes + document.content.size() + Seal::kTagBytes;
    if (MakeRoom(document.owner, bytes) && MayWrite(bytes) && WallMs() >= off_until_ms_) {
      lock.unlock();
      const auto file =
          EncodeDocument(document.owner, WallMs(), document.content, document.id, key_);
      const Status written = WriteFile(document.id, file);
      lock.lock();
      if (written.ok()) {
        Note(document.id, document.owner, bytes);
        ++stats_.stored;
      } else {
        off_until_ms_ = WallMs() + options_.retry_ms;
        Log(LogLevel::kWarning, written.message() + "; it is tried again later");
        ++stats_.left_out;
      }
    } else {
      ++stats_.left_out;
    }
    queue_bytes_ -= document.content.size();
    writing_ = nullptr;
    changed_.notify_all();
  }
}

// Under another name until all of it is on the disk.
Status DocumentStore::WriteFile(const std::string& id, std::span<const std::byte> bytes) const {
  const std::string draft = id + std::string(kDraft);
  const auto fail = [&](int error) {
    ::unlinkat(folder_.fd(), draft.c_str(), 0);
    return Failure("writing a document failed", error);
  };
  if (const int error = FaultOf("open")) return fail(error);
  const OpenFile file(::openat(folder_.fd(), draft.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.fd() < 0) return fail(errno);
  while (!bytes.empty()) {
    const int error = FaultOf("write");
    const ssize_t size = error != 0 ? -1 : ::write(file.fd(), bytes.data(), bytes.size());
    if (size < 0 && error == 0 && errno == EINTR) continue;
    if (size <= 0) return fail(error != 0 ? error : size == 0 ? ENOSPC : errno);
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
  int error = FaultOf("fdatasync");
  if (error != 0 || ::fdatasync(file.fd()) != 0) return fail(error != 0 ? error : errno);
  error = FaultOf("rename");
  if (error != 0 ||
      ::renameat(folder_.fd(), draft.c_str(), folder_.fd(), FileOf(id).c_str()) != 0) {
    return fail(error != 0 ? error : errno);
  }
  (void)::fsync(folder_.fd());
  return OkStatus();
}

std::optional<std::string> DocumentStore::Get(std::string_view owner, std::string_view name) {
  const std::string id = IdOf(owner, name);
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    if (writing_ != nullptr && writing_->id == id) return writing_->content;
    for (const Waiting& waiting : queue_) {
      if (waiting.id == id) return waiting.content;
    }
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return std::nullopt;
    bytes = entry->second.bytes;
  }
  auto file = ReadFile(id, bytes);
  auto content = file.ok() ? DecodeDocument(*file, id, key_) : Result<std::string>(file.status());
  if (content.ok()) return std::move(*content);
  if (content.status().code() != StatusCode::kDataLoss) return std::nullopt;  // gone, or not now
  std::lock_guard lock(mutex_);
  if (!entries_.contains(id)) return std::nullopt;
  ++stats_.damaged;
  ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
  Drop(id);
  return std::nullopt;
}

Result<std::vector<std::byte>> DocumentStore::ReadFile(const std::string& id, size_t bytes) const {
  if (const int error = FaultOf("read")) return Failure("reading a document failed", error);
  const OpenFile file(
      ::openat(folder_.fd(), FileOf(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd() < 0) return Failure("reading a document failed", errno);
  struct stat facts = {};
  if (::fstat(file.fd(), &facts) != 0) return Failure("reading a document failed", errno);
  if (!S_ISREG(facts.st_mode) || static_cast<uint64_t>(facts.st_size) != bytes) {
    return DataLoss("a document has another size than it had");
  }
  std::vector<std::byte> read(bytes);
  REPRISE_TRY(ReadAll(file.fd(), read));
  return read;
}

bool DocumentStore::Remove(std::string_view owner, std::string_view name) {
  const std::string id = IdOf(owner, name);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return writing_ == nullptr || writing_->id != id; });
  bool found = false;
  for (auto waiting = queue_.begin(); waiting != queue_.end();) {
    if (waiting->id != id) {
      ++waiting;
      continue;
    }
    queue_bytes_ -= waiting->content.size();
    waiting = queue_.erase(waiting);
    found = true;
  }
  if (!entries_.contains(id)) return found;
  ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
  Drop(id);
  return true;
}

bool DocumentStore::Settle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && writing_ == nullptr; });
}

DocumentStore::Stats DocumentStore::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.count = entries_.size();
  return stats;
}

}  // namespace reprise
