// SPDX-License-Identifier: Apache-2.0
#include "batches/file_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"

namespace reprise::batches {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesOfTenantMax = 1000;
constexpr size_t kDescriptionBytesMax = 64 << 10;
constexpr char kEnding[] = ".json";

Status Write(const std::string& path, std::string_view bytes) {
  return WriteFileAtomically(path, std::as_bytes(std::span(bytes)));
}

std::string Describe(const StoredFile& file) {
  std::string text;
  JsonWriter(&text)
      .BeginObject()
      .Member("id", file.id)
      .Member("tenant", file.tenant)
      .Member("name", file.name)
      .Member("purpose", file.purpose)
      .Member("bytes", file.bytes)
      .Member("created", file.created)
      .EndObject();
  return text;
}

// Nothing, if the description is not one of ours.
std::optional<StoredFile> ReadDescription(const std::string& path) {
  const auto text = ReadFile(path, kDescriptionBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto document = JsonDocument::Parse(*text);
  if (!document.ok() || !document->root().is_object()) return std::nullopt;
  StoredFile file;
  const std::pair<const char*, std::string*> texts[] = {
      {"id", &file.id}, {"tenant", &file.tenant}, {"name", &file.name}, {"purpose", &file.purpose}};
  for (const auto& [name, value] : texts) {
    const JsonValue* member = document->root().Find(name);
    if (member == nullptr || !member->is_string()) return std::nullopt;
    *value = member->as_string();
  }
  const JsonValue* created = document->root().Find("created");
  if (created == nullptr || !created->is_int()) return std::nullopt;
  file.created = created->as_int();
  return file;
}

}  // namespace

std::string NewId(const char* prefix) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += kDigits[random() % 16];
  return id;
}

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<std::unique_ptr<FileStore>> FileStore::Open(const std::string& folder, uint64_t bytes_max) {
  std::unique_ptr<FileStore> store(new FileStore(folder, bytes_max));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Internal("cannot make the folder " + folder + ": " + error.message());
  fs::permissions(folder, fs::perms::owner_all, error);  // requests are nobody else's to read
  REPRISE_TRY(store->Scan());
  return store;
}

// A file without a description, or the other way round, was being written when a process ended.
Status FileStore::Scan() {
  std::error_code error;
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.is_regular_file(error)) all.insert(entry.path().filename().string());
  }
  if (error) return Internal("cannot read the folder " + folder_ + ": " + error.message());
  std::set<std::string> known;
  for (const std::string& name : all) {
    if (!name.ends_with(kEnding)) continue;
    const std::string id = name.substr(0, name.size() - (sizeof(kEnding) - 1));
    auto file = ReadDescription(PathOf(name));
    if (!file || file->id != id || all.count(id) == 0) continue;
    file->bytes = fs::file_size(PathOf(id), error);
    if (error) continue;
    bytes_ += file->bytes;
    known.insert({id, name});
    files_.emplace(id, std::move(*file));
  }
  for (const std::string& name : all) {
    if (known.count(name) == 0) fs::remove(PathOf(name), error);
  }
  return OkStatus();
}

Result<StoredFile> FileStore::Add(StoredFile file, std::string_view content) {
  file.id = NewId("file-");
  file.bytes = content.size();
  file.created = NowSeconds();
  {
    const std::lock_guard lock(mutex_);
    const auto of_tenant = std::count_if(files_.begin(), files_.end(), [&](const auto& one) {
      return one.second.tenant == file.tenant;
    });
    if (static_cast<size_t>(of_tenant) >= kFilesOfTenantMax) {
      return ResourceExhausted("there are " + std::to_string(of_tenant) +
                               " files already; delete some");
    }
    if (bytes_ + file.bytes > bytes_max_) {
      return ResourceExhausted(
          "there is no room for another file; delete some, or raise "
          "--files-mib");
    }
    bytes_ += file.bytes;  // the place is taken
  }
  Status written = Write(PathOf(file.id), content);
  if (written.ok()) written = Write(PathOf(file.id) + kEnding, Describe(file));
  const std::lock_guard lock(mutex_);
  if (!written.ok()) {
    bytes_ -= file.bytes;
    return written;
  }
  files_.emplace(file.id, file);
  return file;
}

std::vector<StoredFile> FileStore::List(const std::string& tenant) const {
  std::vector<StoredFile> files;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, file] : files_) {
      if (file.tenant == tenant) files.push_back(file);
    }
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const StoredFile& a, const StoredFile& b) { return a.created > b.created; });
  return files;
}

std::optional<StoredFile> FileStore::Find(const std::string& tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return std::nullopt;
  return found->second;
}

Result<std::string> FileStore::Read(const StoredFile& file) const {
  return ReadFile(PathOf(file.id), static_cast<size_t>(file.bytes));
}

bool FileStore::Remove(const std::string& tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) return false;
  std::error_code error;
  fs::remove(PathOf(id) + kEnding, error);
  fs::remove(PathOf(id), error);
  bytes_ -= found->second.bytes;
  files_.erase(found);
  return true;
}

}  // namespace reprise::batches
