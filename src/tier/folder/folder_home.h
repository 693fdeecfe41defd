// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tier/folder/folder.h"
#include "tier/folder/record_file.h"
#include "tier/home.h"
#include "tier/state_keys.h"

namespace reprise {

// Records as files of a folder that belongs to this process.
class FolderHome : public RecordHome {
 public:
  struct Options {
    std::string path;
    bool sync = true;                            // false: need not survive the machine
    std::function<int(const char* call)> fault;  // tests: StateFolder::fault
    bool compress = false;                       // what is written; what is read may be either
  };
  // Makes the folder if it is not there. Refuses one that another process uses.
  static Result<std::unique_ptr<FolderHome>> Open(const Options& options, const StateKeys& keys);

  const char* kind() const override { return "disk"; }
  std::string where() const override { return folder_->path(); }
  bool shared() const override { return false; }
  uint64_t Takes(uint64_t bytes) const override;
  Result<std::vector<Listed>> List() override;
  WrittenDay ReadDay() const override { return ReadWrittenDay(folder_->fd()); }
  void RememberDay(const WrittenDay& day) override { RememberWrittenDay(folder_->fd(), day); }
  Status TryRead(const std::string& name) override;
  Status TryWrite(size_t bytes) override;
  void Remember(std::span<const Listed> records) override;
  std::string NameFor(const RecordFacts&) override { return StateFolder::RandomName(); }
  Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                             const RecordFacts& facts) override;
  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override;
  void Remove(const std::string& name) override { (void)folder_->Remove(name); }
  void Touch(const std::string& name) override { folder_->Touch(name); }

 private:
  std::vector<Listed> OpenAll(std::vector<std::string> names) const;
  Result<RecordFile> OpenRecord(const std::string& name) const;
  FolderHome(const Options& options, const StateKeys& keys) : options_(options), keys_(keys) {}

  const Options options_;
  const StateKeys keys_;
  std::unique_ptr<StateFolder> folder_;
};

}  // namespace reprise
