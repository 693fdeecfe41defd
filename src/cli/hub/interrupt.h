// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <atomic>

namespace reprise::cli {

// While one lives, Ctrl-C (SIGINT) and SIGTERM set a flag instead of ending the process; a second
// one ends it. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static const std::atomic<bool>* flag();

 private:
  struct sigaction int_before_ {};
  struct sigaction term_before_ {};
};

}  // namespace reprise::cli
