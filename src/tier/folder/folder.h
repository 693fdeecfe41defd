// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise {

// StateFolder is a folder of records and little else: names, sizes, and one owner at a time. Files
// can be read by their owner alone.
//
//   lock            held by the process that uses the folder
//   day             what was written of a day's bytes (guard/day_file.h)
//   index           what the heads of records say (folder_index.h), if there are many
//   <16 hex>.state  a record
//   <16 hex>.tmp    a record being written; one that is found at the start is removed
//
// Thread safety: all but Open, List and Names may be called from any thread.
class StateFolder {
 public:
  enum class Use { kOwn, kLook };  // kLook: no lock, nothing is changed
  // Makes the folder if it is not there (kOwn). Fails with a sentence if another process has it.
  static Result<std::unique_ptr<StateFolder>> Open(const std::string& path, Use use);
  ~StateFolder();

  struct Listed {
    std::string name;  // without its ending
    uint64_t bytes = 0;
    int64_t used_ms = 0;  // since 1970, by the file's time
  };
  // All records. As owner, removes what was left unfinished.
  Result<std::vector<Listed>> List();
  // The same, by their names alone: what a file is like is known when it is opened, too.
  Result<std::vector<std::string>> Names();
  // Nothing: it is not there, or no file.
  std::optional<Listed> Look(const std::string& name) const;

  Status Remove(const std::string& name);
  void Touch(const std::string& name);
  static std::string RandomName();
  static int64_t UsedMs(const struct stat& facts);  // since 1970, by a file's time

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // The error of the last call on the file system as a sentence.
  Status Failure(const char* what, int error) const;

  bool sync = true;  // records are on the disk when they are committed
  // Tests: asked before every call on the file system with its name; an error number fails it.
  std::function<int(const char* call)> fault;
  int FaultOf(const char* call) const { return fault ? fault(call) : 0; }
  // What puts files on the disk; tests look whether it is called, and when.
  std::function<int(int fd)> fdatasync = ::fdatasync;
  std::function<int(int fd)> fsync = ::fsync;

 private:
  StateFolder(std::string path, Use use) : path_(std::move(path)), use_(use) {}

  const std::string path_;
  const Use use_;
  int fd_ = -1;
  int lock_ = -1;
};

}  // namespace reprise
