// SPDX-License-Identifier: Apache-2.0
#include "cli/line/line_editor.h"

#include <utility>

namespace reprise::cli {

using Kind = Key::Kind;

std::optional<std::string> LineEditor::Read(std::string_view prompt, std::string draft) {
  prompt_ = prompt;
  line_.Set(std::move(draft));
  draft_.clear();
  browsed_ = history_.size();
  interrupted_ = false;
  terminal_.MakeRaw();
  After after = After::kGoOn;
  for (bool open = true; after == After::kGoOn;) {
    // Keys behind an Enter belong to the next line.
    size_t obeyed = 0;
    while (obeyed < keys_.size() && after == After::kGoOn) after = Obey(keys_[obeyed++]);
    keys_.erase(keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(obeyed));
    if (after != After::kGoOn) break;
    if (!open) {
      after = After::kEnd;
      break;
    }
    Redraw();
    open = terminal_.Read(&keys_);
  }
  terminal_.Write(screen_.Finish(prompt_, line_, RawTerminal::Size()));
  terminal_.MakeQuiet();
  if (after == After::kEnd) return std::nullopt;
  history_.Add(line_.text());
  return line_.text();
}

void LineEditor::Redraw() { terminal_.Write(screen_.Draw(prompt_, line_, RawTerminal::Size())); }

// Older with -1, newer with 1.
void LineEditor::Browse(int step) {
  if (step < 0 ? browsed_ == 0 : browsed_ == history_.size()) return;
  if (browsed_ == history_.size()) draft_ = line_.text();
  browsed_ += static_cast<size_t>(step);
  line_.Set(browsed_ == history_.size() ? draft_ : history_.at(browsed_));
}

LineEditor::After LineEditor::Obey(const Key& key) {
  const bool again = std::exchange(interrupted_, false);
  switch (key.kind) {
    case Kind::kText:
    case Kind::kPaste:
      line_.Insert(key.text);
      break;
    case Kind::kNewline:
      line_.Insert("\n");
      break;
    case Kind::kEnter:
      return After::kDone;
    case Kind::kEndOfInput:
      if (line_.empty()) return After::kEnd;
      line_.Delete();
      break;
    case Kind::kInterrupt:
      if (line_.empty() && again) return After::kEnd;
      if (line_.empty()) {
        terminal_.Write(screen_.Finish(prompt_, line_, RawTerminal::Size()));
        terminal_.Write("(Ctrl-C again, or Ctrl-D, ends)\r\n");
      }
      interrupted_ = line_.empty();
      line_.Set("");
      browsed_ = history_.size();
      break;
    case Kind::kUp:
      if (!line_.Up()) Browse(-1);
      break;
    case Kind::kDown:
      if (!line_.Down()) Browse(1);
      break;
    case Kind::kLeft:
      line_.Left();
      break;
    case Kind::kRight:
      line_.Right();
      break;
    case Kind::kHome:
      line_.Home();
      break;
    case Kind::kEnd:
      line_.End();
      break;
    case Kind::kWordLeft:
      line_.WordLeft();
      break;
    case Kind::kWordRight:
      line_.WordRight();
      break;
    case Kind::kBackspace:
      line_.Backspace();
      break;
    case Kind::kDelete:
      line_.Delete();
      break;
    case Kind::kCutToEnd:
      line_.CutToEnd();
      break;
    case Kind::kCutToStart:
      line_.CutToStart();
      break;
    case Kind::kCutWord:
      line_.CutWord();
      break;
    case Kind::kCutNextWord:
      line_.CutNextWord();
      break;
    case Kind::kYank:
      line_.Yank();
      break;
    case Kind::kRedraw:
      terminal_.Write(screen_.Clear());
      break;
    case Kind::kSuspend:
      terminal_.Write(screen_.Finish(prompt_, line_, RawTerminal::Size()));
      terminal_.Suspend();
      break;
  }
  return After::kGoOn;
}

}  // namespace reprise::cli
