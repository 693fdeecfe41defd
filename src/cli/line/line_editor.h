// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/line/history.h"
#include "cli/line/line.h"
#include "cli/line/raw_terminal.h"
#include "cli/line/screen.h"

namespace reprise::cli {

// Reads messages from a person at a terminal: the keys of Key, a history, messages of several rows.
// Small on purpose: libedit has no bracketed paste, and takes a pasted newline for Enter.
//
// Thread safety: none.
class LineEditor {
 public:
  explicit LineEditor(std::string history_path) : history_(std::move(history_path)) {}

  // A message, without the Enter behind it; none at the end (Ctrl-D on an empty line, or Ctrl-C
  // twice). `draft` is what the line begins with. What is read goes into the history.
  std::optional<std::string> Read(std::string_view prompt, std::string draft = "");

 private:
  enum class After { kGoOn, kDone, kEnd };

  After Obey(const Key& key);
  void Browse(int step);
  void Redraw();

  RawTerminal terminal_;
  History history_;
  Screen screen_;
  Line line_;
  std::string prompt_;
  std::string draft_;         // what was being written before the history was looked at
  size_t browsed_ = 0;        // of the history; its size: the draft
  bool interrupted_ = false;  // the last key was Ctrl-C on an empty line
  std::vector<Key> keys_;     // read, and not obeyed yet
};

}  // namespace reprise::cli
