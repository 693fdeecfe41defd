// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/budget.h"

#include <algorithm>
#include <string>

namespace reprise::jinja {
namespace {

constexpr uint64_t kStepsPerClockRead = 4096;
constexpr size_t kBytesPerStep = 64;

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits),
      deadline_(std::min(limits.deadline, Clock::now() + limits.time_max)),
      next_check_(kStepsPerClockRead) {}

Status Budget::Check() {
  if (steps_ > limits_.steps_max) {
    return ResourceExhausted("the template takes more than " + std::to_string(limits_.steps_max) +
                             " steps");
  }
  if (Clock::now() > deadline_) {
    return ResourceExhausted("the template takes longer than " +
                             std::to_string(limits_.time_max.count()) + " ms");
  }
  if (limits_.abandoned && limits_.abandoned()) {
    return Cancelled("the client has left");
  }
  next_check_ = std::min(steps_ + kStepsPerClockRead, limits_.steps_max + 1);
  return OkStatus();
}

Status Budget::Allocate(size_t bytes) {
  if (bytes > limits_.memory_bytes_max - memory_bytes_) {
    return ResourceExhausted("the template needs more than " +
                             std::to_string(limits_.memory_bytes_max >> 20) + " MiB of memory");
  }
  memory_bytes_ += bytes;
  return Spend(bytes / kBytesPerStep);
}

Status Budget::AllocateProduct(size_t count, size_t bytes) {
  size_t product = 0;
  if (__builtin_mul_overflow(count, bytes, &product)) product = SIZE_MAX;
  return Allocate(product);
}

Status Budget::Admit(const Value& value) {
  if (value.depth() > kValueDepthMax) {
    return ResourceExhausted("a value is nested more than " + std::to_string(kValueDepthMax) +
                             " levels deep");
  }
  return Allocate(value.shallow_bytes());
}

Status Budget::CheckOutput(size_t bytes) const {
  if (bytes <= limits_.output_bytes_max) return OkStatus();
  return ResourceExhausted("the template writes more than " +
                           std::to_string(limits_.output_bytes_max) + " bytes");
}

}  // namespace reprise::jinja
