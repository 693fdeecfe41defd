// SPDX-License-Identifier: Apache-2.0
#include "hub/cache/cache_folder.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/mapped_file.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

// Part of the name of a file that no other process and no other thread writes: several pulls of one
// model run in one server.
std::string OwnSuffix() {
  static std::atomic<uint64_t> count{0};
  return std::to_string(::getpid()) + "-" + std::to_string(++count);
}

constexpr size_t kEntriesMax = 100'000;
constexpr size_t kRefBytesMax = 1024;
constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of models: a backup can leave it out.\n";

Status FileError(const std::string& what, const std::string& path, int error) {
  return Internal(what + " " + path + ": " + std::strerror(error));
}

Status MakeFolders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError("cannot create", path.string(), error.value()) : OkStatus();
}

// Names in a folder, in no order.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator() && names.size() < kEntriesMax;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string CacheFolder::RepoPath(const std::string& repo) const {
  std::string folder(kPrefix);
  for (const char c : repo) folder += c == '/' ? std::string("--") : std::string(1, c);
  return path_ + "/" + folder;
}

std::string CacheFolder::BlobPath(const std::string& repo, const std::string& digest) const {
  return RepoPath(repo) + "/blobs/" + digest;
}

std::string CacheFolder::LocksPath(const std::string& repo) const {
  return path_ + "/.locks/" + fs::path(RepoPath(repo)).filename().string();
}

std::string CacheFolder::LockPath(const std::string& repo, const std::string& digest) const {
  return LocksPath(repo) + "/" + digest + ".lock";
}

std::string CacheFolder::SnapshotPath(const std::string& repo, const std::string& commit) const {
  return RepoPath(repo) + "/snapshots/" + commit;
}

std::optional<std::string> CacheFolder::ReadRef(const std::string& repo,
                                                const std::string& revision) const {
  if (IsCommit(revision)) return revision;
  Result<std::string> text = ReadFile(RepoPath(repo) + "/refs/" + revision, kRefBytesMax);
  if (!text.ok()) return std::nullopt;
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  return IsCommit(*text) ? std::optional(*text) : std::nullopt;
}

Status CacheFolder::WriteRef(const std::string& repo, const std::string& revision,
                             const std::string& commit) const {
  if (IsCommit(revision) || ReadRef(repo, revision) == commit) return OkStatus();
  const std::string path = RepoPath(repo) + "/refs/" + revision;
  REPRISE_TRY(MakeFolders(fs::path(path).parent_path()));
  const std::string own = path + "." + OwnSuffix() + ".tmp";
  REPRISE_TRY(WriteFileAtomically(own, BytesOf(commit)));
  if (::rename(own.c_str(), path.c_str()) != 0) return FileError("cannot write", path, errno);
  return OkStatus();
}

bool CacheFolder::HasBlob(const std::string& repo, const HubFile& file) const {
  struct stat st {};
  return ::stat(BlobPath(repo, file.digest).c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
         static_cast<uint64_t>(st.st_size) == file.bytes;
}

Status CacheFolder::Link(const std::string& repo, const std::string& commit,
                         const HubFile& file) const {
  const std::string path = SnapshotPath(repo, commit) + "/" + file.path;
  std::string target = "../../blobs/" + file.digest;
  for (const char c : file.path) {
    if (c == '/') target = "../" + target;
  }
  std::error_code error;
  if (fs::read_symlink(path, error) == fs::path(target)) return OkStatus();
  REPRISE_TRY(MakeFolders(fs::path(path).parent_path()));
  const std::string beside =
      fs::path(path).parent_path().string() + "/.link." + file.digest + "." + OwnSuffix();
  ::unlink(beside.c_str());
  if (::symlink(target.c_str(), beside.c_str()) != 0) {
    return FileError("cannot link", path, errno);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(beside.c_str());
    return FileError("cannot link", path, reason);
  }
  return OkStatus();
}

std::vector<std::string> CacheFolder::Repos() const {
  std::vector<std::string> repos;
  for (std::string name : NamesIn(path_)) {
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos) {
      name.replace(dashes, 2, "/");
    }
    repos.push_back(std::move(name));
  }
  std::sort(repos.begin(), repos.end());
  return repos;
}

std::vector<std::string> CacheFolder::Commits(const std::string& repo) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : NamesIn(RepoPath(repo) + "/snapshots")) {
    struct stat st {};
    if (!IsCommit(name) || ::stat(SnapshotPath(repo, name).c_str(), &st) != 0) continue;
    found.emplace_back(-int64_t{st.st_mtime}, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> commits;
  for (auto& [age, commit] : found) commits.push_back(std::move(commit));
  return commits;
}

std::vector<HubFile> CacheFolder::Files(const std::string& repo, const std::string& commit) const {
  std::vector<HubFile> files;
  const fs::path root = SnapshotPath(repo, commit);
  std::error_code error;
  fs::recursive_directory_iterator it(root, error);
  for (; !error && it != fs::recursive_directory_iterator() && files.size() < kEntriesMax;
       it.increment(error)) {
    struct stat st {};
    const std::string path = it->path().string();
    if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    HubFile file;
    file.path = path.substr(root.string().size() + 1);
    file.bytes = static_cast<uint64_t>(st.st_size);
    if (IsHubPath(file.path)) files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return files;
}

Status CacheFolder::Create() const {
  REPRISE_TRY(MakeFolders(path_));
  const std::string tag = path_ + "/CACHEDIR.TAG";
  std::error_code error;
  if (!fs::exists(tag, error)) (void)WriteFileAtomically(tag, BytesOf(kTag));
  return OkStatus();
}

std::optional<uint64_t> CacheFolder::FreeBytes() const {
  struct statvfs st {};
  if (::statvfs(path_.c_str(), &st) != 0) return std::nullopt;
  return uint64_t{st.f_bavail} * uint64_t{st.f_frsize};
}

}  // namespace reprise::hub
