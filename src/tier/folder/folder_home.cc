// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/folder_home.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tier/folder/record_file.h"

namespace reprise {
namespace {

constexpr size_t kFilesPerThread = 1000;  // at least
constexpr size_t kListThreads = 4;

}  // namespace

Result<std::unique_ptr<FolderHome>> FolderHome::Open(const Options& options, const StateKey& key) {
  std::unique_ptr<FolderHome> home(new FolderHome(options, key));
  REPRISE_ASSIGN(home->folder_, StateFolder::Open(options.path, StateFolder::Use::kOwn));
  home->folder_->sync = options.sync;
  return home;
}

// Files take whole pages.
uint64_t FolderHome::Takes(uint64_t bytes) const {
  constexpr uint64_t kPageBytes = 4096;
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Result<std::vector<RecordHome::Listed>> FolderHome::List() {
  REPRISE_ASSIGN(std::vector<std::string> names, folder_->Names());
  std::vector<Listed> all(names.size());
  // Mostly waiting for the system: several at a time, each a part of them.
  const auto read = [&](size_t first, size_t step) {
    for (size_t i = first; i < names.size(); i += step) {
      if (auto record = RecordFile::Open(*folder_, key_, names[i]); record.ok()) {
        all[i] = {std::move(names[i]), record->bytes(), record->used_ms(), true, record->facts()};
      } else if (auto file = folder_->Look(names[i])) {
        all[i] = {std::move(file->name), file->bytes, file->used_ms, false, {}};
      }
    }
  };
  const size_t count = std::clamp<size_t>(names.size() / kFilesPerThread, 1, kListThreads);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i) threads.emplace_back(read, i, count);
  read(0, count);
  for (std::thread& thread : threads) thread.join();
  std::erase_if(all, [](const Listed& one) { return one.name.empty(); });  // no file, or gone
  folder_->fault = options_.fault;
  return all;
}

Result<std::unique_ptr<RecordSink>> FolderHome::Create(const std::string& name,
                                                       const RecordFacts& facts) {
  REPRISE_ASSIGN(RecordDraft draft, RecordDraft::Create(*folder_, key_, name, facts));
  return std::unique_ptr<RecordSink>(std::make_unique<RecordDraft>(std::move(draft)));
}

Result<std::unique_ptr<RecordSource>> FolderHome::Open(const std::string& name) {
  REPRISE_ASSIGN(RecordFile file, RecordFile::Open(*folder_, key_, name));
  return std::unique_ptr<RecordSource>(std::make_unique<RecordFile>(std::move(file)));
}

}  // namespace reprise
