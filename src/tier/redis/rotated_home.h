// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tier/home.h"

namespace reprise {

// A shared home while its key is changed: records are written to `current` and read from that and
// from `before`, which is the same server seen with the key before. Names of the latter begin with
// a mark.
//
// Thread safety: as RecordHome.
class RotatedHome : public RecordHome {
 public:
  // REQUIRES: both are shared.
  RotatedHome(std::unique_ptr<RecordHome> current, std::unique_ptr<RecordHome> before)
      : current_(std::move(current)), before_(std::move(before)) {}

  const char* kind() const override { return current_->kind(); }
  std::string where() const override { return current_->where(); }
  bool shared() const override { return true; }
  uint64_t Takes(uint64_t bytes) const override { return current_->Takes(bytes); }
  int64_t keeps_ms() const override { return current_->keeps_ms(); }

  // A path belongs to one of the keys: the other one has nothing along it.
  Result<std::vector<std::vector<Seen>>> Look(std::span<const PromptPath* const> paths) override {
    REPRISE_ASSIGN(std::vector<std::vector<Seen>> all, current_->Look(paths));
    REPRISE_ASSIGN(std::vector<std::vector<Seen>> old, before_->Look(paths));
    for (size_t i = 0; i < all.size(); ++i) {
      for (Seen& one : old[i]) all[i].push_back({kBefore + one.name, std::move(one.facts)});
    }
    return all;
  }
  Status TryRead(const std::string& name) override {
    return IsBefore(name) ? before_->TryRead(name.substr(1)) : current_->TryRead(name);
  }
  Status TryWrite(size_t bytes) override { return current_->TryWrite(bytes); }
  std::string NameFor(const RecordFacts& facts) override { return current_->NameFor(facts); }
  Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                             const RecordFacts& facts) override {
    return current_->Create(name, facts);
  }
  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override {
    return IsBefore(name) ? before_->Open(name.substr(1)) : current_->Open(name);
  }
  void Remove(const std::string& name) override {
    IsBefore(name) ? before_->Remove(name.substr(1)) : current_->Remove(name);
  }
  void Touch(const std::string& name) override {
    IsBefore(name) ? before_->Touch(name.substr(1)) : current_->Touch(name);
  }
  // First all of one, then all of the other; the cursor says of which.
  Status Forget(const PathId& space, std::string* cursor) override {
    const bool before = IsBefore(*cursor);
    if (before) cursor->erase(0, 1);
    REPRISE_TRY((before ? before_ : current_)->Forget(space, cursor));
    if (!before && cursor->empty()) *cursor = kBefore;
    if (before && !cursor->empty()) *cursor = kBefore + *cursor;
    return OkStatus();
  }

 private:
  static constexpr char kMark = '<';
  const std::string kBefore = std::string(1, kMark);
  static bool IsBefore(const std::string& name) { return !name.empty() && name[0] == kMark; }

  const std::unique_ptr<RecordHome> current_;
  const std::unique_ptr<RecordHome> before_;
};

}  // namespace reprise
