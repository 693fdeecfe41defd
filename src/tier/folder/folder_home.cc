// SPDX-License-Identifier: Apache-2.0
#include "tier/folder/folder_home.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tier/folder/folder_index.h"
#include "tier/folder/record_file.h"

namespace reprise {
namespace {

constexpr size_t kFilesPerThread = 1000;  // at least
constexpr size_t kListThreads = 4;

}  // namespace

Result<std::unique_ptr<FolderHome>> FolderHome::Open(const Options& options,
                                                     const StateKeys& keys) {
  std::unique_ptr<FolderHome> home(new FolderHome(options, keys));
  REPRISE_ASSIGN(home->folder_, StateFolder::Open(options.path, StateFolder::Use::kOwn));
  home->folder_->sync = options.sync;
  return home;
}

Result<RecordFile> FolderHome::OpenRecord(const std::string& name) const {
  return keys_.Try([&](const StateKey& key) { return RecordFile::Open(*folder_, key, name); });
}

uint64_t FolderHome::Takes(uint64_t bytes) const { return RoomOf(bytes); }

// What the index knows need not be opened.
Result<std::vector<RecordHome::Listed>> FolderHome::List() {
  REPRISE_ASSIGN(std::vector<std::string> names, folder_->Names());
  std::vector<Listed> all;
  for (const StateKey& key : keys_.all()) {
    if (all.empty()) all = ReadIndex(*folder_, key);
  }
  std::sort(names.begin(), names.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<std::string> unknown;
  auto known = all.begin();
  for (std::string& name : names) {
    while (known != all.end() && known->name < name) (known++)->name.clear();  // gone since
    if (known != all.end() && known->name == name) {
      ++known;
    } else {
      unknown.push_back(std::move(name));
    }
  }
  for (; known != all.end(); ++known) known->name.clear();
  std::vector<Listed> opened = OpenAll(std::move(unknown));
  all.insert(all.end(), std::make_move_iterator(opened.begin()),
             std::make_move_iterator(opened.end()));
  std::erase_if(all, [](const Listed& one) { return one.name.empty(); });  // no file, or gone
  folder_->fault = options_.fault;
  return all;
}

std::vector<RecordHome::Listed> FolderHome::OpenAll(std::vector<std::string> names) const {
  std::vector<Listed> all(names.size());
  // Mostly waiting for the system: several at a time, each a part of them.
  const auto read = [&](size_t first, size_t step) {
    for (size_t i = first; i < names.size(); i += step) {
      if (auto record = OpenRecord(names[i]); record.ok()) {
        all[i] = {std::move(names[i]), RoomOf(record->bytes()), record->used_ms(), true,
                  record->facts()};
      } else if (auto file = folder_->Look(names[i])) {
        all[i] = {std::move(file->name), RoomOf(file->bytes), file->used_ms, false, {}};
      }
    }
  };
  const size_t count = std::clamp<size_t>(names.size() / kFilesPerThread, 1, kListThreads);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i) threads.emplace_back(read, i, count);
  read(0, count);
  for (std::thread& thread : threads) thread.join();
  return all;
}

void FolderHome::Remember(std::span<const Listed> records) {
  if (const Status status = WriteIndex(*folder_, keys_.current(), records); !status.ok()) {
    Log(LogLevel::kWarning, status.message() + "; the next start takes longer");
  }
}

// A record that is gone or damaged was read, as far as the disk is concerned.
Status FolderHome::TryRead(const std::string& name) {
  const auto file = OpenRecord(name);
  if (file.ok()) return OkStatus();
  const StatusCode code = file.status().code();
  const bool answered = code == StatusCode::kNotFound || code == StatusCode::kDataLoss ||
                        code == StatusCode::kFailedPrecondition ||
                        code == StatusCode::kUnimplemented;
  return answered ? OkStatus() : file.status();
}

Status FolderHome::TryWrite(size_t bytes) { return TryToWrite(*folder_, bytes); }

Result<std::unique_ptr<RecordSink>> FolderHome::Create(const std::string& name,
                                                       const RecordFacts& facts) {
  REPRISE_ASSIGN(RecordDraft draft,
                 RecordDraft::Create(*folder_, keys_.current(), name, facts, options_.compress));
  return std::unique_ptr<RecordSink>(std::make_unique<RecordDraft>(std::move(draft)));
}

Result<std::unique_ptr<RecordSource>> FolderHome::Open(const std::string& name) {
  REPRISE_ASSIGN(RecordFile file, OpenRecord(name));
  return std::unique_ptr<RecordSource>(std::make_unique<RecordFile>(std::move(file)));
}

}  // namespace reprise
