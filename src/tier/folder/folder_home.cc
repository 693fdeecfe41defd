// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/folder_home.h"

#include <utility>

#include "tier/folder/record_file.h"

namespace reprise {

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
  REPRISE_ASSIGN(std::vector<StateFolder::Listed> files, folder_->List());
  std::vector<Listed> all;
  all.reserve(files.size());
  for (StateFolder::Listed& file : files) {
    const auto record = RecordFile::Open(*folder_, key_, file.name);
    all.push_back({std::move(file.name), file.bytes, file.used_ms, record.ok(), {}});
    if (record.ok()) all.back().facts = record->facts();
  }
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
