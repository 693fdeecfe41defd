// SPDX-License-Identifier: Apache-2.0
// Proves that tenants take turns, that large requests leave a thread to small ones, and that
// stopping waits for what runs and for nothing else.
#include "http/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace reprise::http {
namespace {

// Holds the threads that run it until it is opened.
class Gate {
 public:
  std::function<void()> Task() {
    return [this] {
      ++entered;
      open_.wait();
    };
  }
  void Open() { promise_.set_value(); }
  void AwaitEntered(int count) const {
    while (entered < count) std::this_thread::yield();
  }
  std::atomic<int> entered{0};

 private:
  std::promise<void> promise_;
  const std::shared_future<void> open_ = promise_.get_future().share();
};

TEST(WorkQueue, SharesTakeTurns) {
  std::string order;
  std::promise<void> done;
  Gate gate;
  WorkQueue queue(1);
  queue.Add({"a", false, gate.Task()});
  gate.AwaitEntered(1);
  for (const char name : std::string("aaaaabbc")) {
    queue.Add({std::string(1, name), false, [&order, name] { order += name; }});
  }
  queue.Add({"a", false, [&done] { done.set_value(); }});
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "abcabaaa");
}

TEST(WorkQueue, LargeRequestsLeaveAThread) {
  for (const int threads : {2, 4}) {
    Gate gate;
    WorkQueue queue(threads);
    for (int i = 0; i < 20; ++i) queue.Add({"a", true, gate.Task()});
    gate.AwaitEntered(threads / 2);
    for (int i = 0; i < 20; ++i) {  // of the same tenant, too
      std::promise<void> ran;
      queue.Add({"a", false, [&ran] { ran.set_value(); }});
      ran.get_future().wait();
    }
    EXPECT_EQ(gate.entered, threads / 2);
    gate.Open();
  }
}

TEST(WorkQueue, LargeRequestsAreNotStarvedBySmallOnes) {
  std::string order;
  std::promise<void> done;
  Gate gate;
  WorkQueue queue(1);
  queue.Add({"a", false, gate.Task()});
  gate.AwaitEntered(1);
  queue.Add({"a", false, [&order] { order += '1'; }});
  queue.Add({"a", true, [&order] { order += '2'; }});
  queue.Add({"a", false, [&] {
               order += '3';
               done.set_value();
             }});
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "123");
}

TEST(WorkQueue, StopDropsWhatWaits) {
  std::atomic<int> ran{0};
  Gate gate;
  {
    WorkQueue queue(4);
    queue.Add({"a", false, gate.Task()});
    queue.Add({"a", false, gate.Task()});
    gate.AwaitEntered(2);
    for (int i = 0; i < 100; ++i) queue.Add({"a", false, [&ran] { ++ran; }});
    auto stopped = std::async(std::launch::async, [&queue] { queue.Stop(); });
    // Tasks are dropped before the running ones end: adding is over once Stop has begun.
    bool taken = true;
    while (taken) {
      auto token = std::make_shared<int>(0);
      const std::weak_ptr<int> held = token;
      queue.Add({"a", false, [token] {}});
      token.reset();
      taken = !held.expired();
    }
    gate.Open();
    stopped.get();
  }
  EXPECT_EQ(ran, 0);
}

}  // namespace
}  // namespace reprise::http
