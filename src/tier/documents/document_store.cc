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
constexpr int kReaders = 2;
constexpr int64_t kTryPauseMaxMs = 60'000;

bool IsNamed(std::string_view file, std::string_view ending) {
  if (file.size() != kIdDigits + ending.size() || !file.ends_with(ending)) return false;
  return file.substr(0, kIdDigits).find_first_not_of("0123456789abcdef") == file.npos;
}

std::string FileOf(const std::string& id) { return id + std::string(kEnding); }

Status ReadAll(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t size = ::read(fd, out.data(), out.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Internal(std::string("reading a document failed: ") + strerror(errno));
    if (size == 0) return DataLoss("a document ends too soon");
    out = out.subspan(static_cast<size_t>(size));
  }
  return OkStatus();
}

std::string IdOf(const StateKey& key, std::string_view owner, std::string_view name) {
  std::string about(owner);
  about.push_back('\0');
  about.append(name);
  const StateKey::Bytes derived = key.Derive("document", about);
  std::string id;
  for (size_t i = 0; i < kIdDigits / 2; ++i) id += fmt::format("{:02x}", derived[i]);
  return id;
}

OwnerId OwnerOf(const StateKey& key, std::string_view owner) {
  const StateKey::Bytes derived = key.Derive("owner", owner);
  OwnerId id;
  std::copy_n(derived.begin(), id.size(), id.begin());
  return id;
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
                                                           const StateKeys& keys) {
  std::unique_ptr<DocumentStore> store(new DocumentStore(options, keys));
  if (::mkdir(options.path.c_str(), 0700) != 0 && errno != EEXIST) {
    return NotFound("the folder " + options.path + " cannot be made: " + std::strerror(errno));
  }
  store->folder_ = OpenFile(::open(options.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (store->folder_.fd() < 0) {
    return NotFound("the folder " + options.path + " cannot be opened: " + std::strerror(errno));
  }
  REPRISE_TRY(store->ReadFolder());
  store->threads_.emplace_back([raw = store.get()] { raw->WriteLoop(); });
  for (int i = 0; i < kReaders; ++i) {
    store->threads_.emplace_back([raw = store.get()] { raw->ReadLoop(); });
  }
  return store;
}

DocumentStore::~DocumentStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DocumentStore::Unlink(const std::string& id) const {
  ::unlinkat(folder_.fd(), FileOf(id).c_str(), 0);
}

// kDataLoss: what lies there is no document.
Result<DocumentHead> DocumentStore::ReadHead(const std::string& id) const {
  if (const int error = FaultOf("read")) return Failure("reading a document failed", error);
  const OpenFile file(
      ::openat(folder_.fd(), FileOf(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts = {};
  if (file.fd() < 0 && errno == ELOOP) return DataLoss("a document is a link");
  if (file.fd() < 0 || ::fstat(file.fd(), &facts) != 0) {
    return Failure("reading a document failed", errno);
  }
  if (!S_ISREG(facts.st_mode)) return DataLoss("a document is not a regular file");
  std::array<std::byte, kDocumentHeadBytes> bytes;
  REPRISE_TRY(ReadAll(file.fd(), bytes));
  REPRISE_ASSIGN(const DocumentHead head, DecodeDocumentHead(bytes));
  if (head.file_bytes() != static_cast<uint64_t>(facts.st_size)) {
    return DataLoss("a document has not the size it says");
  }
  return head;
}

// Takes what an earlier process left, by its heads, oldest first. What cannot be read now takes
// room, and may be read later.
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
  std::lock_guard lock(mutex_);
  std::vector<std::pair<DocumentHead, std::string>> found;
  for (std::string& id : files) {
    const auto head = ReadHead(id);
    struct stat facts = {};
    if (head.ok()) {
      found.emplace_back(*head, std::move(id));
    } else if (head.status().code() == StatusCode::kDataLoss) {
      ++stats_.damaged;
      Unlink(id);
    } else if (::fstatat(folder_.fd(), FileOf(id).c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0) {
      unread_bytes_ += static_cast<uint64_t>(facts.st_size);
      unread_.emplace(std::move(id), static_cast<uint64_t>(facts.st_size));
    }
  }
  if (!unread_.empty()) {
    Log(LogLevel::kWarning,
        fmt::format("{} documents in {} cannot be read now; they stay, and are tried again when "
                    "somebody wants them",
                    unread_.size(), options_.path));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.created_ms, a.second) < std::tie(b.first.created_ms, b.second);
  });
  uint64_t today = 0;
  for (const auto& [head, id] : found) {
    if (head.created_ms > WallMs() - DayBudget::kDayMs) today += head.file_bytes();
    if (!Fits(head.file_bytes())) {
      Unlink(id);
      continue;
    }
    for (const std::string& old : MakeRoom(head.owner, head.file_bytes())) Unlink(old);
    Note(id, head.owner, head.file_bytes());
    // A head may say anything: what it says of the future is not believed.
    if (head.created_ms <= WallMs()) last_created_ms_ = head.created_ms;
  }
  const WrittenDay day = ReadWrittenDay(folder_.fd());
  day_.Begin(std::max(today, day.Now(WallMs(), options_.bytes_day_max)), WallMs());
  return OkStatus();
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

// Those whose files have to go. REQUIRES: Fits.
std::vector<std::string> DocumentStore::MakeRoom(const OwnerId& owner, uint64_t bytes) {
  std::vector<std::string> gone;
  const auto remove = [&](std::string id) {
    Drop(id);
    gone.push_back(std::move(id));
  };
  for (auto held = owners_.find(owner); held != owners_.end(); held = owners_.find(owner)) {
    const Held& has = held->second;
    if (has.bytes + bytes <= options_.owner_bytes_max &&
        has.ids.size() < options_.owner_count_max) {
      break;
    }
    remove(has.ids.begin()->second);
  }
  const auto over = [&] {
    return stats_.bytes + unread_bytes_ + bytes > options_.bytes_max ||
           ids_.size() + unread_.size() >= kCountMax;
  };
  while (over() && !unread_.empty()) {
    gone.push_back(unread_.begin()->first);
    unread_bytes_ -= unread_.begin()->second;
    unread_.erase(unread_.begin());
  }
  while (over() && !ids_.empty()) remove(ids_.begin()->second);
  return gone;
}

void DocumentStore::Put(std::string_view owner, std::string_view name, std::string content) {
  const size_t bytes = content.size();
  const StateKey& key = keys_.current();
  Waiting waiting{IdOf(key, owner, name), OwnerOf(key, owner), std::move(content)};
  {
    std::lock_guard lock(mutex_);
    TakeOver(owner);
    if (bytes > kDocumentBytesMax || queue_bytes_ + bytes > kQueueBytes || stop_ ||
        writes_.open()) {
      ++stats_.left_out;
      return;
    }
    queue_bytes_ += bytes;
    queue_.push_back(std::move(waiting));
    // What it was by the key before is not to be found any more.
    for (const StateKey& before : keys_.all().subspan(1)) {
      std::string id = IdOf(before, owner, name);
      if (entries_.contains(id)) queue_.push_back({.id = std::move(id), .remove = true});
    }
  }
  changed_.notify_all();
}

// What the owner has by the key before is its own: within the same bounds.
void DocumentStore::TakeOver(std::string_view owner) {
  for (const StateKey& before : keys_.all().subspan(1)) {
    const auto old = owners_.find(OwnerOf(before, owner));
    if (old == owners_.end()) continue;
    const OwnerId to = OwnerOf(keys_.current(), owner);
    Held& held = owners_[to];
    held.bytes += old->second.bytes;
    for (auto& [order, id] : old->second.ids) {
      entries_[id].owner = to;
      held.ids[order] = std::move(id);
    }
    owners_.erase(old);
  }
}

void DocumentStore::WriteLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto work = [this] { return stop_ || !queue_.empty(); };
    if (!writes_.open()) {
      changed_.wait(lock, work);
    } else if (!changed_.wait_until(lock, try_at_, work)) {
      TryToWrite(&lock);
      continue;
    }
    if (queue_.empty()) return;
    const Waiting document = std::move(queue_.front());
    queue_.pop_front();
    writing_ = &document;
    Carry(document, &lock);
    queue_bytes_ -= document.content.size();
    writing_ = nullptr;
    changed_.notify_all();
  }
}

void DocumentStore::Carry(const Waiting& document, std::unique_lock<std::mutex>* lock) {
  if (document.remove) {
    lock->unlock();
    Unlink(document.id);
    lock->lock();
    return Drop(document.id);  // it may have been written meanwhile
  }
  const uint64_t bytes = kDocumentHeadBytes + document.content.size() + Seal::kTagBytes;
  if (!Fits(bytes) || writes_.open() || !day_.Take(bytes, WallMs())) {
    ++stats_.left_out;
    return;
  }
  const std::vector<std::string> gone = MakeRoom(document.owner, bytes);
  const WrittenDay day = {day_.Written(WallMs()), WallMs()};
  // Of two documents of one millisecond the later one is the younger, behind a restart, too.
  last_created_ms_ = std::max(WallMs(), last_created_ms_ + 1);
  const int64_t created_ms = last_created_ms_;
  lock->unlock();
  for (const std::string& id : gone) Unlink(id);
  const auto file =
      EncodeDocument(document.owner, created_ms, document.content, document.id, keys_.current());
  const Status written = WriteFile(document.id, file);
  if (written.ok() && options_.bytes_day_max > 0) RememberWrittenDay(folder_.fd(), day);
  lock->lock();
  if (written.ok()) {
    writes_.Succeed();
    Note(document.id, document.owner, bytes);
    ++stats_.stored;
    return;
  }
  ++stats_.left_out;
  day_.GiveBack(bytes);
  if (!writes_.Fail(written)) return;
  try_pause_ms_ = writes_.pause_ms();
  try_at_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(try_pause_ms_);
}

// A file like that of a document, under a name that none has.
void DocumentStore::TryToWrite(std::unique_lock<std::mutex>* lock) {
  lock->unlock();
  const std::string id(kIdDigits, '0');
  const Status written = WriteFile(id, std::vector<std::byte>(kDocumentHeadBytes));
  if (written.ok()) Unlink(id);
  lock->lock();
  if (written.ok()) return writes_.Close();
  const int64_t most = std::max(try_pause_ms_, kTryPauseMaxMs);
  try_pause_ms_ = std::clamp<int64_t>(try_pause_ms_ * 2, 1, most);
  try_at_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(try_pause_ms_);
}

void DocumentStore::ReadLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !reads_.empty(); });
    if (stop_) return;
    const std::shared_ptr<Reading> one = std::move(reads_.front());
    reads_.pop_front();
    const auto mine = reading_since_.insert(std::chrono::steady_clock::now());
    lock.unlock();
    auto file = ReadFile(one->id);
    lock.lock();
    reading_since_.erase(mine);
    one->file = std::move(file);
    one->done = true;
    changed_.notify_all();
  }
}

// What a file holds, in time. Where one has been read for too long, no other is begun.
Result<std::vector<std::byte>> DocumentStore::Await(const std::string& id,
                                                    std::unique_lock<std::mutex>* lock) {
  const std::chrono::milliseconds timeout(options_.timeout_ms);
  const auto now = std::chrono::steady_clock::now();
  if (!reading_since_.empty() && now - *reading_since_.begin() >= timeout) {
    return Internal("the disk does not answer in time");
  }
  const auto one = std::make_shared<Reading>();
  one->id = id;
  reads_.push_back(one);
  changed_.notify_all();
  const bool done = changed_.wait_until(*lock, now + timeout, [&] { return one->done || stop_; });
  if (!done || !one->done) {
    std::erase(reads_, one);
    return Internal("the disk does not answer in time");
  }
  return std::move(one->file);
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
  std::unique_lock lock(mutex_);
  TakeOver(owner);
  const OwnerId owner_id = OwnerOf(keys_.current(), owner);
  for (const StateKey& key : keys_.all()) {
    auto content = GetBy(key, IdOf(key, owner, name), owner_id, &lock);
    if (content) return content;
  }
  return std::nullopt;
}

std::optional<std::string> DocumentStore::GetBy(const StateKey& key, const std::string& id,
                                                const OwnerId& owner,
                                                std::unique_lock<std::mutex>* lock) {
  for (auto waiting = queue_.rbegin(); waiting != queue_.rend(); ++waiting) {
    if (waiting->id == id && waiting->remove) return std::nullopt;
    if (waiting->id == id) return waiting->content;
  }
  if (writing_ != nullptr && writing_->id == id && !writing_->remove) return writing_->content;
  if (!entries_.contains(id) && !unread_.contains(id)) return std::nullopt;
  auto file = Await(id, lock);
  lock->unlock();
  auto content = file.ok() ? DecodeDocument(*file, id, key) : Result<std::string>(file.status());
  lock->lock();
  if (const auto unread = unread_.find(id); content.ok() && unread != unread_.end()) {
    unread_bytes_ -= unread->second;
    unread_.erase(unread);
    Note(id, owner, file->size());
  }
  if (content.ok()) return std::move(*content);
  if (content.status().code() != StatusCode::kDataLoss) return std::nullopt;  // gone, or not now
  if (!entries_.contains(id)) return std::nullopt;
  ++stats_.damaged;
  Drop(id);
  queue_.push_back({.id = id, .remove = true});
  changed_.notify_all();
  return std::nullopt;
}

Result<std::vector<std::byte>> DocumentStore::ReadFile(const std::string& id) const {
  if (const int error = FaultOf("read")) return Failure("reading a document failed", error);
  const OpenFile file(
      ::openat(folder_.fd(), FileOf(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd() < 0) return Failure("reading a document failed", errno);
  struct stat facts = {};
  if (::fstat(file.fd(), &facts) != 0) return Failure("reading a document failed", errno);
  const auto bytes = static_cast<uint64_t>(facts.st_size);
  if (!S_ISREG(facts.st_mode) || bytes > kDocumentHeadBytes + kDocumentBytesMax + Seal::kTagBytes) {
    return DataLoss("a document has a size that none has");
  }
  std::vector<std::byte> read(bytes);
  REPRISE_TRY(ReadAll(file.fd(), read));
  return read;
}

// What it was is found by nobody from now on; the file is gone when it returns, unless the disk
// does not answer in time.
bool DocumentStore::Remove(std::string_view owner, std::string_view name) {
  std::unique_lock lock(mutex_);
  bool found = false;
  for (const StateKey& key : keys_.all()) found |= RemoveId(IdOf(key, owner, name), &lock);
  return found;
}

bool DocumentStore::RemoveId(const std::string& id, std::unique_lock<std::mutex>* lock) {
  const std::chrono::milliseconds timeout(options_.timeout_ms);
  const auto is_written = [&] { return writing_ == nullptr || writing_->id != id; };
  (void)changed_.wait_for(*lock, timeout, is_written);
  bool found = false;
  for (auto waiting = queue_.begin(); waiting != queue_.end();) {
    if (waiting->id != id) {
      ++waiting;
      continue;
    }
    found |= !waiting->remove;
    queue_bytes_ -= waiting->content.size();
    waiting = queue_.erase(waiting);
  }
  if (const auto unread = unread_.find(id); unread != unread_.end()) {
    unread_bytes_ -= unread->second;
    unread_.erase(unread);
    found = true;
  }
  found |= entries_.contains(id) || !is_written();
  if (!found) return false;
  Drop(id);
  queue_.push_back({.id = id, .remove = true});
  changed_.notify_all();
  (void)changed_.wait_for(*lock, timeout, [&] {
    return is_written() && std::none_of(queue_.begin(), queue_.end(),
                                        [&](const Waiting& one) { return one.id == id; });
  });
  return true;
}

bool DocumentStore::Settle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && writing_ == nullptr; });
}

DocumentStore::Stats DocumentStore::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.count = entries_.size() + unread_.size();
  stats.bytes += unread_bytes_;
  stats.failing = writes_.open();
  return stats;
}

}  // namespace reprise
