// SPDX-License-Identifier: Apache-2.0
#include "cli/hub/interrupt.h"

namespace reprise::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

}  // namespace

Interrupt::Interrupt() {
  interrupted.store(false);
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &int_before_);
  ::sigaction(SIGTERM, &action, &term_before_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &int_before_, nullptr);
  ::sigaction(SIGTERM, &term_before_, nullptr);
}

const std::atomic<bool>* Interrupt::flag() { return &interrupted; }

}  // namespace reprise::cli
