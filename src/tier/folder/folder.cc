// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/rand.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

constexpr std::string_view kRecord = ".state";
constexpr std::string_view kDraft = ".tmp";
constexpr size_t kNameDigits = 16;

bool IsNamed(std::string_view file, std::string_view ending) {
  if (file.size() != kNameDigits + ending.size() || !file.ends_with(ending)) return false;
  return file.substr(0, kNameDigits).find_first_not_of("0123456789abcdef") == file.npos;
}

}  // namespace

Status StateFolder::Failure(const char* what, int error) const {
  const std::string text = fmt::format("{} in {}: {}", what, path_, std::strerror(error));
  if (error == ENOENT) return NotFound(text);
  return error == ENOSPC || error == EDQUOT ? ResourceExhausted(text) : Internal(text);
}

Result<std::unique_ptr<StateFolder>> StateFolder::Open(const std::string& path, Use use) {
  std::unique_ptr<StateFolder> folder(new StateFolder(path, use));
  if (use == Use::kOwn && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return NotFound("the state folder " + path + " cannot be made: " + std::strerror(errno));
  }
  folder->fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder->fd_ < 0) {
    return NotFound("the state folder " + path + " cannot be opened: " + std::strerror(errno));
  }
  if (use == Use::kLook) return folder;
  folder->lock_ = ::openat(folder->fd_, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (folder->lock_ < 0) {
    return FailedPrecondition("the state folder " + path +
                              " cannot be written to: " + std::strerror(errno));
  }
  if (::flock(folder->lock_, LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition("the state folder " + path +
                              " is in use by another process; give each server its own");
  }
  return folder;
}

StateFolder::~StateFolder() {
  if (lock_ >= 0) ::close(lock_);
  if (fd_ >= 0) ::close(fd_);
}

Result<std::vector<std::string>> StateFolder::Names() {
  const int again = ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = again < 0 ? nullptr : ::fdopendir(again);
  if (dir == nullptr) return Failure("listing records failed", errno);
  std::vector<std::string> names;
  while (const dirent* one = ::readdir(dir)) {
    const std::string_view file = one->d_name;
    if (use_ == Use::kOwn && IsNamed(file, kDraft)) ::unlinkat(fd_, one->d_name, 0);
    if (IsNamed(file, kRecord)) names.emplace_back(file.substr(0, kNameDigits));
  }
  ::closedir(dir);
  return names;
}

int64_t StateFolder::UsedMs(const struct stat& facts) {
  return int64_t{facts.st_mtim.tv_sec} * 1000 + facts.st_mtim.tv_nsec / 1'000'000;
}

std::optional<StateFolder::Listed> StateFolder::Look(const std::string& name) const {
  struct stat facts = {};
  const std::string file = name + std::string(kRecord);
  if (::fstatat(fd_, file.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!S_ISREG(facts.st_mode)) return std::nullopt;
  return Listed{name, static_cast<uint64_t>(facts.st_size), UsedMs(facts)};
}

Result<std::vector<StateFolder::Listed>> StateFolder::List() {
  REPRISE_ASSIGN(const std::vector<std::string> names, Names());
  std::vector<Listed> listed;
  for (const std::string& name : names) {
    if (auto one = Look(name)) listed.push_back(std::move(*one));
  }
  return listed;
}

Status StateFolder::Remove(const std::string& name) {
  const int error = FaultOf("unlink");
  if (error == 0 && ::unlinkat(fd_, (name + std::string(kRecord)).c_str(), 0) == 0) {
    return OkStatus();
  }
  if (error == 0 && errno == ENOENT) return OkStatus();
  return Failure("removing a record failed", error != 0 ? error : errno);
}

void StateFolder::Touch(const std::string& name) {
  (void)::utimensat(fd_, (name + std::string(kRecord)).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

std::string StateFolder::RandomName() {
  uint64_t number = 0;
  CHECK(::RAND_bytes(reinterpret_cast<uint8_t*>(&number), sizeof(number)) == 1);
  return fmt::format("{:016x}", number);
}

}  // namespace reprise
