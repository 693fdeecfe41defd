// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace reprise::cli {

// What was typed before, in this session and earlier ones, oldest first: a file of one entry a line
// (newlines and backslashes escaped), readable by its owner only. Without a path it lives in
// memory. Trouble with the file is no trouble for the chat: the history is then shorter.
//
// 1. At most kEntriesMax entries, each of at most kEntryBytesMax bytes; larger ones are not kept.
// 2. Several processes may add to one file: each adds whole lines.
class History {
 public:
  static constexpr size_t kEntriesMax = 1000;
  static constexpr size_t kEntryBytesMax = size_t{16} << 10;

  explicit History(std::string path);

  // Not kept: empty ones, and the same as the one before.
  void Add(std::string_view entry);

  size_t size() const { return entries_.size(); }
  const std::string& at(size_t index) const { return entries_[index]; }

 private:
  void Read();
  void Write(bool all) const;

  const std::string path_;
  std::deque<std::string> entries_;
};

// $XDG_STATE_HOME/reprise/history, else ~/.local/state/reprise/history; empty where neither is
// known.
std::string HistoryPath();

}  // namespace reprise::cli
