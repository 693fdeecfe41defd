// SPDX-License-Identifier: Apache-2.0
#include "hub/cache/inventory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "hub/cache/digest.h"
#include "hub/cache/file_lock.h"
#include "hub/names/choice.h"
#include "hub/pull.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIncomplete = ".incomplete";

struct Blob {
  std::string name;
  uint64_t bytes = 0;
  bool link = false;  // to a place that several repositories share
};

std::vector<Blob> BlobsOf(const CacheFolder& cache, const std::string& repo) {
  std::vector<Blob> blobs;
  std::error_code error;
  fs::directory_iterator it(cache.RepoPath(repo) + "/blobs", error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    struct stat own {
    }, st{};
    const std::string path = it->path().string();
    if (::lstat(path.c_str(), &own) != 0 || ::stat(path.c_str(), &st) != 0) continue;
    if (!S_ISREG(st.st_mode)) continue;
    blobs.push_back(
        {it->path().filename().string(), static_cast<uint64_t>(st.st_size), S_ISLNK(own.st_mode)});
  }
  return blobs;
}

// The names of the blobs that the snapshots of a repository link to.
std::set<std::string> LinkedBlobs(const CacheFolder& cache, const std::string& repo) {
  std::set<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator it(cache.RepoPath(repo) + "/snapshots", error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    const fs::path target = fs::read_symlink(it->path(), ignored);
    if (!target.empty()) names.insert(target.filename().string());
  }
  return names;
}

// Holds the locks of all blobs of a repository: nobody fetches one now.
Result<std::vector<FileLock>> LockAll(const CacheFolder& cache, const std::string& repo) {
  std::vector<FileLock> locks;
  std::error_code error;
  fs::directory_iterator it(cache.LocksPath(repo), error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".lock") continue;
    REPRISE_ASSIGN(std::optional<FileLock> lock, FileLock::Try(it->path().string()));
    if (!lock) {
      return FailedPrecondition("another process fetches a part of " + repo +
                                " now: end it, or wait for it");
    }
    locks.push_back(std::move(*lock));
  }
  return locks;
}

// The sum of what is gone.
uint64_t RemoveUnlinked(const CacheFolder& cache, const std::string& repo) {
  const std::set<std::string> linked = LinkedBlobs(cache, repo);
  uint64_t freed = 0;
  for (const Blob& blob : BlobsOf(cache, repo)) {
    const bool unfinished = std::string_view(blob.name).ends_with(kIncomplete);
    if (unfinished || linked.contains(blob.name)) continue;
    if (::unlink(cache.BlobPath(repo, blob.name).c_str()) == 0 && !blob.link) freed += blob.bytes;
  }
  return freed;
}

Result<uint64_t> RemoveRepo(const CacheFolder& cache, const std::string& repo) {
  uint64_t freed = 0;
  for (const Blob& blob : BlobsOf(cache, repo)) freed += blob.link ? 0 : blob.bytes;
  std::error_code error;
  // In one step out of sight, so that nobody opens a half of it.
  const std::string path = cache.RepoPath(repo);
  const std::string doomed = cache.path() + "/.removed-" + std::to_string(::getpid());
  fs::rename(path, doomed, error);
  if (error) return Internal("cannot remove " + path + ": " + error.message());
  fs::remove_all(doomed, error);
  if (error) return Internal("cannot remove " + doomed + ": " + error.message());
  fs::remove_all(cache.LocksPath(repo), error);
  return freed;
}

Result<std::string> DigestOfFile(const std::string& path, const std::string& expected,
                                 uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Internal("cannot open " + path + ": " + std::strerror(errno));
  Digest digest(expected, bytes);
  std::vector<char> buffer(1 << 20);
  ssize_t count = 0;
  while ((count = ::read(fd, buffer.data(), buffer.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    digest.Add({buffer.data(), static_cast<size_t>(count)});
  }
  const int error = errno;
  ::close(fd);
  if (count < 0) return Internal("cannot read " + path + ": " + std::strerror(error));
  return digest.Finish();
}

// The models of one repository by name. Those of commits that are no longer the branch's have the
// commit in their name, unless they are the same file.
std::map<std::string, CachedModel> ModelsOf(const CacheFolder& cache, const std::string& repo) {
  std::map<std::string, CachedModel> models;
  std::set<std::string> blobs;
  std::vector<std::string> commits = cache.Commits(repo);
  const auto main = cache.ReadRef(repo, "main");
  std::stable_partition(commits.begin(), commits.end(),
                        [&](const std::string& commit) { return commit == main; });
  for (const std::string& commit : commits) {
    for (const ModelFiles& model : FindModels(cache.Files(repo, commit)).models) {
      const ModelName name{repo, commit == main ? "main" : commit, model.label};
      const std::string path = cache.SnapshotPath(repo, commit) + "/" + model.files.back().path;
      std::error_code error;
      const std::string blob = fs::canonical(path, error).string();
      if (!FindInCache(cache, name).ok() || !blobs.insert(blob).second) continue;
      struct stat st {};
      ::stat(path.c_str(), &st);
      models.emplace(name.ToString(), CachedModel{name.ToString(), model.bytes(), st.st_mtime});
    }
  }
  return models;
}

}  // namespace

Inventory ListModels(const CacheFolder& cache) {
  Inventory inventory;
  for (const std::string& repo : cache.Repos()) {
    const std::map<std::string, CachedModel> models = ModelsOf(cache, repo);
    Inventory::Unfinished unfinished{repo};
    uint64_t bytes = 0;
    for (const Blob& blob : BlobsOf(cache, repo)) {
      (std::string_view(blob.name).ends_with(kIncomplete) ? unfinished.bytes : bytes) += blob.bytes;
    }
    if (unfinished.bytes > 0) inventory.unfinished.push_back(unfinished);
    if (!models.empty()) inventory.bytes += bytes;
    for (const auto& [name, model] : models) inventory.models.push_back(model);
  }
  return inventory;
}

Result<uint64_t> RemoveModel(const CacheFolder& cache, const ModelName& name) {
  struct stat st {};
  if (::stat(cache.RepoPath(name.repo).c_str(), &st) != 0) {
    return NotFound(name.repo + " is not in the cache (" + cache.path() + ")");
  }
  REPRISE_ASSIGN(const std::vector<FileLock> locks, LockAll(cache, name.repo));
  if (name.wanted.empty()) return RemoveRepo(cache, name.repo);
  bool found = false;
  Status why;
  std::vector<std::string> commits = cache.Commits(name.repo);
  if (name.revision != "main") {
    const auto commit = cache.ReadRef(name.repo, name.revision);
    commits = commit ? std::vector{*commit} : std::vector<std::string>();
  }
  for (const std::string& commit : commits) {
    const Result<ModelFiles> model =
        Choose(FindModels(cache.Files(name.repo, commit)), name.wanted);
    if (!model.ok()) {
      why = model.status();
      continue;
    }
    found = true;
    for (const HubFile& file : model->files) {
      ::unlink((cache.SnapshotPath(name.repo, commit) + "/" + file.path).c_str());
    }
  }
  if (!found) return why.ok() ? NotFound(name.repo + " has no snapshot") : why;
  return RemoveUnlinked(cache, name.repo);
}

Result<uint64_t> VerifyRepo(const CacheFolder& cache, const std::string& repo,
                            const std::function<void(const std::string& sentence)>& damaged) {
  uint64_t bytes = 0;
  std::set<std::string> present;
  for (const Blob& blob : BlobsOf(cache, repo)) {
    if (!IsDigest(blob.name)) continue;
    present.insert(blob.name);
    bytes += blob.bytes;
    const std::string path = cache.BlobPath(repo, blob.name);
    const Result<std::string> digest = DigestOfFile(path, blob.name, blob.bytes);
    if (!digest.ok()) {
      damaged(digest.status().message());
    } else if (*digest != blob.name) {
      damaged(path + " does not have the checksum that is its name");
    }
  }
  for (const std::string& name : LinkedBlobs(cache, repo)) {
    if (IsDigest(name) && !present.contains(name)) {
      damaged(cache.BlobPath(repo, name) + " is missing, and a snapshot links to it");
    }
  }
  return bytes;
}

}  // namespace reprise::hub
