// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <termios.h>

#include <string_view>
#include <vector>

#include "cli/line/key_reader.h"
#include "cli/line/screen.h"

namespace reprise::cli {

// The terminal at stdin, key by key. While it is raw, keys are neither echoed nor made into lines
// or signals, and pastes are bracketed. Between two lines it is quiet: keys that are typed while a
// reply comes are kept for the next line and not echoed into it, and Ctrl-C is a signal.
//
// There is one terminal, so there is one of these. It is left as it was found, also when a signal
// ends the process (SIGTERM, SIGHUP, SIGQUIT).
//
// Thread safety: none.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Whether stdin and stderr are a terminal that understands escape sequences.
  static bool Usable();

  void MakeRaw();
  void MakeQuiet();
  // As it was found, for as long as the process is stopped (Ctrl-Z).
  void Suspend();

  // Waits for keys. False at the end of the input. No keys: the size has changed, or a signal came.
  bool Read(std::vector<Key>* keys);

  // To stderr, where prompts belong.
  void Write(std::string_view text) const;

  static ScreenSize Size();

 private:
  void Apply(const termios& mode);

  termios found_ = {};
  KeyReader reader_;
};

}  // namespace reprise::cli
