// SPDX-License-Identifier: Apache-2.0
#include "base/account/account.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

bool Ledger::Take(const std::string& share, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = by_share_.find(share);
  const size_t held = found == by_share_.end() ? 0 : found->second;
  if (bytes > limits_.bytes - std::min(limits_.bytes, bytes_) ||
      bytes > limits_.share_bytes - std::min(limits_.share_bytes, held)) {
    ++refusals_;
    return false;
  }
  by_share_[share] += bytes;
  bytes_ += bytes;
  most_ = std::max(most_, bytes_);
  return true;
}

void Ledger::Give(const std::string& share, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = by_share_.find(share);
  CHECK(found != by_share_.end() && found->second >= bytes && bytes_ >= bytes);
  found->second -= bytes;
  bytes_ -= bytes;
  if (found->second == 0) by_share_.erase(found);
}

size_t Ledger::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t Ledger::bytes_of(const std::string& share) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_share_.find(share);
  return found == by_share_.end() ? 0 : found->second;
}

size_t Ledger::bytes_most() const {
  const std::lock_guard lock(mutex_);
  return most_;
}

uint64_t Ledger::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

bool Holding::Set(size_t bytes) {
  if (ledger_ != nullptr && bytes > bytes_ && !ledger_->Take(share_, bytes - bytes_)) return false;
  if (ledger_ != nullptr && bytes < bytes_) ledger_->Give(share_, bytes_ - bytes);
  bytes_ = bytes;
  return true;
}

Account::Account(std::shared_ptr<Ledger> ledger, std::string share, const Limits& limits)
    : ledger_(std::move(ledger)),
      share_(std::move(share)),
      limits_(limits),
      holding_(ledger_, share_),
      work_max_(limits.small_work) {}

Account::Account()
    : limits_{.small_work = ~uint64_t{0}, .work = ~uint64_t{0}, .bytes = ~size_t{0}},
      work_max_(limits_.work) {}

Status Account::Take(size_t bytes, const char* what, size_t* kind) {
  const std::lock_guard lock(mutex_);
  if (bytes > limits_.bytes - std::min(limits_.bytes, holding_.bytes())) {
    return ResourceExhausted(std::string("the request takes too much memory for ") + what +
                             "; send less of it");
  }
  if (!holding_.Set(holding_.bytes() + bytes)) {
    return FailedPrecondition(std::string("the server has no memory left for ") + what +
                              "; try again later");
  }
  *kind += bytes;
  return OkStatus();
}

void Account::EndReading() {
  const std::lock_guard lock(mutex_);
  body_ = reading_ = 0;
  (void)holding_.Set(answer_);
}

size_t Account::bytes() const {
  const std::lock_guard lock(mutex_);
  return holding_.bytes();
}

Status Account::Spend(uint64_t steps, const char* what) {
  if (abandoned()) return Cancelled("the client has left");
  const uint64_t left = work_left();
  work_ += std::min(steps, left);
  if (steps <= left && !refused_) return OkStatus();
  refused_ = true;
  return ResourceExhausted(std::string(what) + " takes more time than a request may have");
}

void Account::Widen() {
  {
    const std::lock_guard lock(mutex_);
    reading_ = answer_ = 0;
    (void)holding_.Set(body_);
  }
  work_ = 0;
  work_max_ = limits_.work;
  refused_ = false;
}

}  // namespace reprise
