// SPDX-License-Identifier: Apache-2.0
// `reprise state`: what lies in a folder of state, whether it is sound, and making room in it.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "tier/catalog.h"
#include "tier/folder/folder.h"
#include "tier/folder/record_file.h"
#include "tier/state_keys.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string path;
  std::string key_file;
  std::string old_key_file;
  double keep_gib = -1;
  int64_t days = -1;
  bool unreadable = false;
};

struct Seen {
  StateFolder::Listed file;
  RecordFacts facts;
  bool packed = false;
  Status status;  // of its head
};

struct Look {
  StateKeys keys;
  std::unique_ptr<StateFolder> folder;
  std::vector<Seen> records;  // the last used first
};

Result<Look> LookAt(const Options& options, StateFolder::Use use) {
  Look look;
  if (!options.key_file.empty()) {
    REPRISE_ASSIGN(const StateKey key, StateKey::Read(options.key_file));
    look.keys = StateKeys(key);
    if (!options.old_key_file.empty()) {
      REPRISE_ASSIGN(const StateKey before, StateKey::Read(options.old_key_file));
      look.keys = StateKeys(key, before);
    }
  }
  // A folder that is not there is not made.
  REPRISE_ASSIGN(look.folder, StateFolder::Open(options.path, StateFolder::Use::kLook));
  if (use == StateFolder::Use::kOwn) {
    REPRISE_ASSIGN(look.folder, StateFolder::Open(options.path, use));
  }
  REPRISE_ASSIGN(std::vector<StateFolder::Listed> files, look.folder->List());
  for (StateFolder::Listed& file : files) {
    Seen seen{std::move(file), {}, false, {}};
    auto record = look.keys.Try(
        [&](const StateKey& key) { return RecordFile::Open(*look.folder, key, seen.file.name); });
    seen.status = record.status();
    if (record.ok()) {
      seen.facts = record->facts();
      seen.packed = record->packed();
    }
    look.records.push_back(std::move(seen));
  }
  std::sort(look.records.begin(), look.records.end(), [](const Seen& a, const Seen& b) {
    return std::pair(b.file.used_ms, a.file.name) < std::pair(a.file.used_ms, b.file.name);
  });
  return look;
}

std::string Hex(const PathId& id) {
  std::string text;
  char two[3];
  for (size_t i = 0; i < 4; ++i) {
    std::snprintf(two, sizeof(two), "%02x", id.bytes[i]);
    text += two;
  }
  return text;
}

std::string Time(int64_t ms) {
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts = {};
  char text[32] = "?";
  if (::gmtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

Status List(const Options& options) {
  REPRISE_ASSIGN(const Look look, LookAt(options, StateFolder::Use::kLook));
  uint64_t bytes = 0, packed_bytes = 0, unpacked_bytes = 0;
  size_t unreadable = 0;
  std::printf("%-16s  %-8s  %17s  %10s  %s\n", "record", "model", "tokens", "size", "last used");
  for (const Seen& seen : look.records) {
    bytes += seen.file.bytes;
    if (!seen.status.ok()) {
      ++unreadable;
      std::printf("%-16s  %s\n", seen.file.name.c_str(), seen.status.message().c_str());
      continue;
    }
    if (seen.packed) {
      packed_bytes += seen.file.bytes;
      unpacked_bytes += RecordBytes(seen.facts);
    }
    const std::string tokens =
        std::to_string(seen.facts.begin) + " to " + std::to_string(seen.facts.end);
    std::printf("%-16s  %-8s  %17s  %10s  %s\n", seen.file.name.c_str(),
                Hex(seen.facts.model).c_str(), tokens.c_str(), FormatBytes(seen.file.bytes).c_str(),
                Time(seen.file.used_ms).c_str());
  }
  std::printf("%zu records, %s", look.records.size(), FormatBytes(bytes).c_str());
  if (unpacked_bytes > 0) {
    std::printf("; %s of it compressed, %s before", FormatBytes(packed_bytes).c_str(),
                FormatBytes(unpacked_bytes).c_str());
  }
  if (unreadable > 0) std::printf("; %zu of them cannot be read with this key", unreadable);
  std::printf("\n");
  return OkStatus();
}

Status Verify(const Options& options) {
  REPRISE_ASSIGN(const Look look, LookAt(options, StateFolder::Use::kLook));
  size_t bad = 0;
  uint64_t bytes = 0;
  for (const Seen& seen : look.records) {
    const Status status = look.keys.Try(
        [&](const StateKey& key) { return VerifyRecord(*look.folder, key, seen.file.name); });
    bytes += seen.file.bytes;
    // Gone meanwhile: a server is at work here.
    if (status.ok() || status.code() == StatusCode::kNotFound) continue;
    ++bad;
    std::printf("%s: %s\n", seen.file.name.c_str(), status.message().c_str());
  }
  std::printf("%zu records read, %s\n", look.records.size(), FormatBytes(bytes).c_str());
  if (bad == 0) return OkStatus();
  return DataLoss(std::to_string(bad) + " records are not sound; a server does not use them");
}

// Removes what was asked for, and what cannot be used without that.
Status Prune(const Options& options) {
  if (options.keep_gib < 0 && options.days < 0 && !options.unreadable) {
    return InvalidArgument("choose records to remove: --keep-gib, --days or --unreadable");
  }
  REPRISE_ASSIGN(Look look, LookAt(options, StateFolder::Use::kOwn));
  uint64_t freed = 0;
  size_t removed = 0;
  const auto remove = [&](const std::string& name, uint64_t bytes) -> Status {
    REPRISE_TRY(look.folder->Remove(name));
    freed += bytes;
    ++removed;
    return OkStatus();
  };
  Catalog catalog;
  std::sort(look.records.begin(), look.records.end(),
            [](const Seen& a, const Seen& b) { return a.facts.begin < b.facts.begin; });
  uint64_t left = 0;
  for (Seen& seen : look.records) {
    const StateFolder::Listed& file = seen.file;
    if (seen.status.ok() && catalog.Add(file.name, seen.facts, file.bytes, file.used_ms).valid()) {
      continue;
    }
    if (seen.status.ok() || options.unreadable) {
      REPRISE_TRY(remove(file.name, file.bytes));
    } else {
      left += file.bytes;
    }
  }
  const int64_t oldest_ms = options.days < 0
                                ? INT64_MIN
                                : (int64_t{std::time(nullptr)} - options.days * 24 * 3600) * 1000;
  const auto bytes_max = static_cast<uint64_t>(std::max(0.0, options.keep_gib) * (1 << 30));
  while (const auto leaf = catalog.OldestLeaf()) {
    const Catalog::Record& record = catalog[*leaf];
    const bool old = record.used_ms < oldest_ms;
    const bool over = options.keep_gib >= 0 && left + catalog.bytes() > bytes_max;
    if (!old && !over) break;
    REPRISE_TRY(remove(record.name, record.bytes));
    catalog.Remove(*leaf);
  }
  std::printf("%zu records removed, %s; %s left\n", removed, FormatBytes(freed).c_str(),
              FormatBytes(left + catalog.bytes()).c_str());
  return OkStatus();
}

}  // namespace

void DefineState(Flags* flags) {
  const auto define = [&](const char* name, const char* summary, Status (*run)(const Options&)) {
    Flags* command = flags->AddCommand(name, summary);
    auto options = std::make_shared<Options>();
    command->Add("PATH", &options->path, "folder given to serve --disk", {.required = true});
    command->Add("--state-key-file", &options->key_file, "key of the records, if they have one");
    command->Add("--old-state-key-file", &options->old_key_file, "the key before, of some of them");
    command->SetAction([options, run] { return run(*options); });
    return std::pair(command, options);
  };
  define("ls", "list the records: model, tokens, size, last use", List);
  define("verify", "read and check every byte", Verify);
  const auto [prune, options] = define("prune", "remove the oldest records", Prune);
  prune->Add("--keep-gib", &options->keep_gib, "maximum GiB to keep", {.min = 0, .max = 1 << 20});
  prune->Add("--days", &options->days, "remove records that were not used for this many days",
             {.min = 0, .max = 36500});
  prune->Add("--unreadable", &options->unreadable,
             "remove records that are damaged, or of another key or version");
}

}  // namespace reprise::cli
