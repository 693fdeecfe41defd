// SPDX-License-Identifier: Apache-2.0
// Proves that tenants take turns, that large requests leave a thread to small ones, and that
// stopping waits for what runs and for nothing else.
#include "http/shares/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace reprise::http {
namespace {

using Size = WorkQueue::Size;

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
  queue.Add({"a", Size::kSmall, gate.Task()});
  gate.AwaitEntered(1);
  for (const char name : std::string("aaaaabbc")) {
    queue.Add({std::string(1, name), Size::kSmall, [&order, name] { order += name; }});
  }
  queue.Add({"a", Size::kSmall, [&done] { done.set_value(); }});
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "abcabaaa");
}

TEST(WorkQueue, LargeRequestsLeaveAThread) {
  for (const int threads : {2, 3}) {
    Gate gate;
    WorkQueue queue(threads);
    for (int i = 0; i < 20; ++i) queue.Add({"a", Size::kHeavy, gate.Task()});
    gate.AwaitEntered(1);
    for (int i = 0; i < 20; ++i) {  // of the same tenant, too
      std::promise<void> ran;
      queue.Add({"a", Size::kSmall, [&ran] { ran.set_value(); }});
      ran.get_future().wait();
    }
    EXPECT_EQ(gate.entered, 1);
    gate.Open();
  }
}

// However long the heavy tasks of one share take, those of another do not wait for them, nor does
// anything that is small or quick.
TEST(WorkQueue, AHeavyShareLeavesAHeavyThread) {
  Gate gate;
  WorkQueue queue(6);
  for (int i = 0; i < 20; ++i) queue.Add({"a", Size::kHeavy, gate.Task()});
  gate.AwaitEntered(2);
  for (const Size size : {Size::kHeavy, Size::kSmall, Size::kQuick}) {
    for (int i = 0; i < 20; ++i) {
      std::promise<void> ran;
      queue.Add({"b", size, [&ran] { ran.set_value(); }});
      ran.get_future().wait();
    }
  }
  EXPECT_EQ(gate.entered, 2);
  gate.Open();
  gate.AwaitEntered(20);
}

// A request that turns out to be heavy begins as a small one: those of one share, however many, are
// not what a small task of another waits for.
TEST(WorkQueue, ASmallShareLeavesASmallThread) {
  Gate gate;
  WorkQueue queue(6);
  for (int i = 0; i < 20; ++i) queue.Add({"a", Size::kSmall, gate.Task()});
  gate.AwaitEntered(2);
  for (int i = 0; i < 20; ++i) {
    std::promise<void> ran;
    queue.Add({"b", Size::kSmall, [&ran] { ran.set_value(); }});
    ran.get_future().wait();
  }
  EXPECT_EQ(gate.entered, 2);
  gate.Open();
  gate.AwaitEntered(20);
}

TEST(WorkQueue, QuickTasksWaitForNoOthers) {
  Gate gate;
  WorkQueue queue(4);
  for (const char* share : {"a", "b"}) {
    for (int i = 0; i < 8; ++i) queue.Add({share, Size::kSmall, gate.Task()});
    for (int i = 0; i < 8; ++i) queue.Add({share, Size::kHeavy, gate.Task()});
  }
  gate.AwaitEntered(4);
  std::promise<void> ran;
  queue.Add({"a", Size::kQuick, [&ran] { ran.set_value(); }});
  ran.get_future().wait();
  EXPECT_EQ(gate.entered, 4);
  gate.Open();
}

// A task wakes one thread that may run it: small requests do not pay for many threads, and have no
// lock in common with heavy ones.
TEST(WorkQueue, ATaskWakesOneThread) {
  constexpr uint64_t kTasks = 300;
  WorkQueue queue(16);
  for (uint64_t i = 0; i < kTasks; ++i) {
    std::promise<void> ran;
    queue.Add({"a", i % 3 == 0 ? Size::kHeavy : Size::kSmall, [&ran] { ran.set_value(); }});
    ran.get_future().wait();
  }
  EXPECT_LE(queue.wakes(), kTasks + kTasks / 10) << "some come for nothing";
}

TEST(WorkQueue, LargeRequestsAreNotStarvedBySmallOnes) {
  std::string order;
  std::promise<void> done;
  Gate gate;
  WorkQueue queue(1);
  queue.Add({"a", Size::kSmall, gate.Task()});
  gate.AwaitEntered(1);
  queue.Add({"a", Size::kSmall, [&order] { order += '1'; }});
  queue.Add({"a", Size::kHeavy, [&order] { order += '2'; }});
  queue.Add({"a", Size::kSmall, [&] {
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
    queue.Add({"a", Size::kSmall, gate.Task()});
    queue.Add({"b", Size::kSmall, gate.Task()});
    gate.AwaitEntered(2);
    for (int i = 0; i < 100; ++i) queue.Add({"a", Size::kSmall, [&ran] { ++ran; }});
    auto stopped = std::async(std::launch::async, [&queue] { queue.Stop(); });
    // Tasks are dropped before the running ones end: adding is over once Stop has begun.
    bool taken = true;
    while (taken) {
      auto token = std::make_shared<int>(0);
      const std::weak_ptr<int> held = token;
      queue.Add({"a", Size::kSmall, [token] {}});
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
