// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "device/background.h"

namespace reprise {

// A Chore is work in pieces that a thread does for another, who may call it off: then it never
// begins, or ends after the piece that is under way. Whoever calls it off waits for that piece at
// most, and never for other work that the thread has to do first.
//
//   thread.Post([chore] {
//     if (!chore->Begin()) return;
//     while (more && !chore->off()) one piece;
//     chore->End();
//   });
//
// A long one may let others have the thread between two pieces: if (chore->Pause()) post it again.
//
// Thread safety: all methods from any thread.
class Chore {
 public:
  // False: it was called off.
  bool Begin() {
    State waits = State::kWaits;
    return state_.compare_exchange_strong(waits, State::kRuns);
  }
  bool off() const { return state_ == State::kStops; }
  void End() { state_ = State::kDone; }
  // It waits once more, to begin again. False: it was called off, and is to end.
  bool Pause() {
    State runs = State::kRuns;
    return state_.compare_exchange_strong(runs, State::kWaits);
  }

  // It has ended, or will never begin.
  bool done() const { return state_ == State::kDone; }
  // Returns when it is done. REQUIRES: it was posted to `thread`.
  void Await(Background& thread) const {
    if (!done()) thread.WaitUntil([this] { return done(); });
  }
  void CallOff(Background& thread) {
    State state = State::kWaits;
    if (state_.compare_exchange_strong(state, State::kDone)) return;
    state = State::kRuns;
    state_.compare_exchange_strong(state, State::kStops);
    Await(thread);
  }

 private:
  enum class State { kWaits, kRuns, kStops, kDone };
  std::atomic<State> state_{State::kWaits};
};

}  // namespace reprise
