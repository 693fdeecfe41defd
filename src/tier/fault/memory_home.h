// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tier/home.h"

namespace reprise {

// For tests: records in memory, as a shared home has them, with a place for faults before every
// call. Several homes may lie on one MemoryServer, as several servers do on one Redis.
//
// Thread safety: as RecordHome's.
class MemoryServer {
 public:
  struct Stored {
    RecordFacts facts;
    std::vector<std::vector<std::byte>> parts;
  };

  std::mutex mutex;  // guards what follows
  std::map<std::string, Stored> records;
  std::unordered_map<PathId, std::string> names;  // by path: the last one written
  std::map<std::string, size_t> unfinished;       // parts of records that are not committed
  uint64_t names_given = 0;
};

class MemoryHome : public RecordHome {
 public:
  // Asked before every call with its name ("look", "open", "read", "create", "write", "commit",
  // "remove", "forget", "try read", "try write") and the record's; may wait, and fail it.
  using Fault = std::function<Status(const std::string& call, const std::string& record)>;

  explicit MemoryHome(std::shared_ptr<MemoryServer> server, Fault fault = nullptr,
                      bool shared = true, int64_t keeps_ms = 0)
      : server_(std::move(server)),
        fault_(std::move(fault)),
        shared_(shared),
        keeps_ms_(keeps_ms) {}

  const char* kind() const override { return shared_ ? "store" : "disk"; }
  std::string where() const override { return "memory"; }
  bool shared() const override { return shared_; }
  int64_t keeps_ms() const override { return keeps_ms_; }

  Result<std::vector<Listed>> List() override {
    std::vector<Listed> all;
    if (shared_) return all;
    std::lock_guard lock(server_->mutex);
    for (const auto& [name, one] : server_->records) {
      all.push_back({name, RecordBytes(one.facts), one.facts.created_ms, true, one.facts});
    }
    return all;
  }

  Result<std::vector<std::vector<Seen>>> Look(std::span<const PromptPath* const> paths) override {
    REPRISE_TRY(FaultOf("look", std::to_string(paths.size())));
    std::lock_guard lock(server_->mutex);
    std::vector<std::vector<Seen>> all;
    for (const PromptPath* path : paths) {
      std::vector<Seen>& seen = all.emplace_back();
      std::unordered_set<std::string> seen_names;
      for (const auto& [id, name] : server_->names) {
        const RecordFacts& facts = server_->records.at(name).facts;
        if (seen_names.contains(name)) continue;
        const int32_t at = PositionOf(facts, id);
        if (at > path->size() || path->At(at) != id) continue;
        seen_names.insert(name);
        seen.push_back({name, facts});
      }
    }
    return all;
  }

  Status TryRead(const std::string& name) override { return FaultOf("try read", name); }
  Status TryWrite(size_t) override { return FaultOf("try write", ""); }

  std::string NameFor(const RecordFacts&) override {
    std::lock_guard lock(server_->mutex);
    return "record " + std::to_string(++server_->names_given);
  }

  Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                             const RecordFacts& facts) override {
    REPRISE_TRY(FaultOf("create", name));
    return std::unique_ptr<RecordSink>(std::make_unique<Sink>(this, name, facts));
  }

  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override {
    REPRISE_TRY(FaultOf("open", name));
    std::lock_guard lock(server_->mutex);
    const auto at = server_->records.find(name);
    if (at == server_->records.end()) return NotFound("the record is gone");
    return std::unique_ptr<RecordSource>(std::make_unique<Source>(this, name, at->second));
  }

  void Remove(const std::string& name) override {
    if (!FaultOf("remove", name).ok()) return;
    std::lock_guard lock(server_->mutex);
    server_->records.erase(name);
    std::erase_if(server_->names, [&](const auto& one) { return one.second == name; });
  }
  void Touch(const std::string&) override {}

  // The second slice has nothing more.
  Status Forget(const PathId& space, std::string* cursor) override {
    REPRISE_TRY(FaultOf("forget", *cursor));
    *cursor = cursor->empty() ? "more" : "";
    std::lock_guard lock(server_->mutex);
    std::erase_if(server_->records, [&](const auto& one) {
      return space.empty() || one.second.facts.space == space;
    });
    std::erase_if(server_->names,
                  [&](const auto& one) { return !server_->records.contains(one.second); });
    return OkStatus();
  }

 private:
  class Sink : public RecordSink {
   public:
    Sink(MemoryHome* home, std::string name, const RecordFacts& facts)
        : home_(*home), name_(std::move(name)) {
      stored_.facts = facts;
    }
    ~Sink() override {
      std::lock_guard lock(home_.server_->mutex);
      home_.server_->unfinished.erase(name_);
    }
    Status Append(std::span<std::byte> data) override {
      REPRISE_TRY(home_.FaultOf("write", name_));
      stored_.parts.emplace_back(data.begin(), data.end());
      std::lock_guard lock(home_.server_->mutex);
      ++home_.server_->unfinished[name_];
      return OkStatus();
    }
    Status Commit() override {
      REPRISE_TRY(home_.FaultOf("commit", name_));
      std::lock_guard lock(home_.server_->mutex);
      for (const PathId& mark : stored_.facts.marks) home_.server_->names[mark] = name_;
      home_.server_->names[stored_.facts.path] = name_;
      home_.server_->records[name_] = stored_;
      return OkStatus();
    }
    uint64_t bytes() const override { return RecordBytes(stored_.facts); }

   private:
    MemoryHome& home_;
    const std::string name_;
    MemoryServer::Stored stored_;
  };

  class Source : public RecordSource {
   public:
    Source(MemoryHome* home, std::string name, MemoryServer::Stored stored)
        : home_(*home),
          name_(std::move(name)),
          stored_(std::move(stored)),
          layout_(stored_.facts) {}
    const RecordFacts& facts() const override { return stored_.facts; }
    const RecordLayout& layout() const override { return layout_; }
    Status ReadPart(size_t index, std::span<std::byte> out) override {
      REPRISE_TRY(home_.FaultOf("read", name_));
      CHECK(out.size() == stored_.parts[index].size());
      std::copy(stored_.parts[index].begin(), stored_.parts[index].end(), out.begin());
      return OkStatus();
    }

   private:
    MemoryHome& home_;
    const std::string name_;
    const MemoryServer::Stored stored_;
    const RecordLayout layout_;
  };

  // Where the path ends that has the id: that of the record, or one of its marks.
  static int32_t PositionOf(const RecordFacts& facts, const PathId& id) {
    if (facts.path == id) return facts.end;
    const auto mark = std::find(facts.marks.begin(), facts.marks.end(), id);
    CHECK(mark != facts.marks.end());
    const auto index = static_cast<int32_t>(mark - facts.marks.begin());
    return (facts.begin / kBlockTokens + 1 + index) * kBlockTokens;
  }

  Status FaultOf(const std::string& call, const std::string& record) const {
    return fault_ ? fault_(call, record) : OkStatus();
  }

  const std::shared_ptr<MemoryServer> server_;
  const Fault fault_;
  const bool shared_;
  const int64_t keeps_ms_;
};

}  // namespace reprise
