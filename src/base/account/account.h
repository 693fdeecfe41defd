// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"

namespace reprise {

// What requests hold in memory, by share (a tenant, or an address) and in all.
//
// 1. All shares together hold at most `bytes`, one share at most `share_bytes`. What does not fit
//    is not taken.
// 2. What was taken is given back by whoever took it (Holding): a ledger whose requests have all
//    ended holds nothing.
//
// Thread safety: all methods from any thread.
class Ledger {
 public:
  struct Limits {
    size_t bytes = size_t{1} << 30;
    size_t share_bytes = size_t{512} << 20;
  };
  explicit Ledger(const Limits& limits) : limits_(limits) {}
  Ledger() : Ledger(Limits{}) {}

  const Limits& limits() const { return limits_; }
  size_t bytes() const;
  size_t bytes_of(const std::string& share) const;
  size_t bytes_most() const;  // the most that all shares ever held together
  uint64_t refusals() const;  // how often something did not fit

 private:
  friend class Holding;
  bool Take(const std::string& share, size_t bytes);
  void Give(const std::string& share, size_t bytes);

  const Limits limits_;
  mutable std::mutex mutex_;               // guards what follows
  std::map<std::string, size_t> by_share_;  // those that hold something
  size_t bytes_ = 0;
  size_t most_ = 0;
  uint64_t refusals_ = 0;
};

// Bytes of a ledger that one thing holds. They are given back when it goes. Without a ledger
// everything fits.
//
// Thread safety: none; owners lock.
class Holding {
 public:
  Holding() = default;
  Holding(std::shared_ptr<Ledger> ledger, std::string share)
      : ledger_(std::move(ledger)), share_(std::move(share)) {}
  ~Holding() { (void)Set(0); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

  // False, and nothing changes, if that much does not fit. Less always does.
  bool Set(size_t bytes);
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::string share_;
  size_t bytes_ = 0;
};

// What one request costs, from its first byte to the last of its answer: memory, and work.
//
// Memory is of two kinds. The body, and what it is *read* with (parsed JSON, rendered text), goes
// when the handler is done (EndReading); what the answer needs (prompts, choices) goes with the
// account.
//
// Work is counted in steps of about 100 ns, before or while it is done. A request begins as a small
// one, on a thread where others wait behind it, with few steps. When they are spent everything is
// refused, `wants_more()` says why, and the request begins again elsewhere with all of its steps
// (Widen). So nobody needs to know beforehand what a request will cost, and small requests wait for
// small ones only.
//
// 1. Charges come before the cost, or soon after it in pieces.
// 2. What was refused once stays refused, until Widen: no caller can lose it on the way.
//
// Thread safety: bytes from any thread; work from the one that handles the request.
class Account {
 public:
  struct Limits {
    uint64_t small_work = 50'000;
    uint64_t work = 64'000'000;
    size_t bytes = size_t{384} << 20;
  };
  Account(std::shared_ptr<Ledger> ledger, std::string share, const Limits& limits);
  // Of work that is nobody's request: nothing is refused.
  Account();

  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }
  const std::string& share() const { return share_; }

  // More bytes for `what` ("the parsed body"). Fails with kResourceExhausted if they are more than
  // a request may have, with kFailedPrecondition if there is no room now.
  Status TakeBody(size_t bytes) { return Take(bytes, "the body", &body_); }
  Status TakeReading(size_t bytes, const char* what) { return Take(bytes, what, &reading_); }
  Status TakeAnswer(size_t bytes, const char* what) { return Take(bytes, what, &answer_); }
  void EndReading();
  size_t bytes() const;

  // Fails with kResourceExhausted if not so many steps are left, with kCancelled if nobody waits
  // for the answer any more. `what` is what takes them ("tokenising the text").
  Status Spend(uint64_t steps, const char* what);
  uint64_t work() const { return work_; }
  uint64_t work_left() const { return work_ < work_max_ ? work_max_ - work_ : 0; }

  // Spent, but only what a small request has.
  bool wants_more() const { return refused_ && work_max_ < limits_.work; }
  // Begins again, with its body and all steps.
  void Widen();

  // Asked now and then: whether nobody waits for the answer. Set before there is work.
  void SetAbandoned(std::function<bool()> abandoned) { abandoned_ = std::move(abandoned); }
  bool abandoned() const { return abandoned_ && abandoned_(); }

 private:
  Status Take(size_t bytes, const char* what, size_t* kind);

  const std::shared_ptr<Ledger> ledger_;
  const std::string share_;
  const Limits limits_;
  std::function<bool()> abandoned_;
  mutable std::mutex mutex_;  // guards what follows
  Holding holding_;
  size_t body_ = 0;
  size_t reading_ = 0;
  size_t answer_ = 0;

  std::atomic<uint64_t> work_{0};
  uint64_t work_max_;
  bool refused_ = false;
};

using AccountPtr = std::shared_ptr<Account>;

}  // namespace reprise
