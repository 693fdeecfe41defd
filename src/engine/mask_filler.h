// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sample/token_constraint.h"
#include "sample/token_mask.h"

namespace reprise {

// A mask for a step that has not begun. Its sequence waits for it, and nobody else does.
struct MaskAhead {
  MaskAhead(std::shared_ptr<TokenConstraint> made_by, size_t vocab_size)
      : constraint(std::move(made_by)), mask(vocab_size) {}

  const std::shared_ptr<TokenConstraint> constraint;
  TokenMask mask;
  Status status;
  double seconds = 0;              // of the processor
  std::atomic<bool> done = false;  // the rest may be read
};

// Runs the constraints of a step beside its forward pass: which tokens may come next depends on
// those that are there, not on the logits. Constraints whose masks take long would hold up the
// step, and everybody in it: those run ahead of it, one after another, on a thread of their own.
//
// Thread safety: one caller. The threads are started with their first work; without constraints
// there are none.
class MaskFiller {
 public:
  MaskFiller() = default;
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  // REQUIRES: nothing is under way.
  void Start(std::vector<std::function<void()>> jobs);
  // Returns when all of them are done.
  void Wait();

  // REQUIRES: until it is done nobody else uses its constraint.
  void FillAhead(std::shared_ptr<MaskAhead> ahead);
  // Waits a moment for one that is under way. False: there is none.
  bool AwaitAhead();

 private:
  void Loop();
  void LoopAhead();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::function<void()>> jobs_;
  bool busy_ = false;
  std::deque<std::shared_ptr<MaskAhead>> ahead_;  // the first is under way
  bool stop_ = false;
  std::thread thread_;
  std::thread ahead_thread_;
};

}  // namespace reprise
