// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace reprise {

// Runs the constraints of a step beside its forward pass: which tokens may come next depends on
// those that are there, not on the logits.
//
// Thread safety: one caller. The thread is started with the first work; without constraints there
// is none.
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

 private:
  void Loop();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::function<void()>> jobs_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace reprise
