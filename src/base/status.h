// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace reprise {

// Status and Result<T> carry expected refusals: a bad file, a full queue, a prompt that is too
// long. The message is one sentence for a person: what was wrong and what to do. Broken invariants
// are not errors but bugs: CHECK. A normal absence (a cache miss) is a std::optional.
enum class StatusCode {
  kOk,
  kInvalidArgument,     // the caller's input is wrong
  kNotFound,            // a named thing does not exist
  kDataLoss,            // a file is truncated, corrupt or hostile
  kUnimplemented,       // valid, but not supported here
  kResourceExhausted,   // does not fit: memory, queue, budget
  kFailedPrecondition,  // not now: loading, draining
  kCancelled,
  kInternal,  // the machine below failed: I/O, NaN
};

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with "prefix: " before its message: where it happened.
  Status Annotate(const std::string& prefix) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status DataLoss(std::string message);
Status Unimplemented(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status Cancelled(std::string message);
Status Internal(std::string message);

// A T, or the reason why there is none. value() on an error is a programmer error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                 // NOLINT
  Result(Status status) : status_(std::move(status)) { CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    CHECK(ok());
    return *value_;
  }
  T&& value() && {
    CHECK(ok());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace reprise

#define REPRISE_CONCAT_(a, b) a##b
#define REPRISE_CONCAT(a, b) REPRISE_CONCAT_(a, b)

// Returns from the enclosing function if `expr` (a Status) is an error.
#define REPRISE_TRY(expr)                                          \
  do {                                                             \
    if (::reprise::Status try_status = (expr); !try_status.ok()) { \
      return try_status;                                           \
    }                                                              \
  } while (false)

// REPRISE_ASSIGN(auto x, Compute()): x is the value, or the enclosing function returns the error.
#define REPRISE_ASSIGN(lhs, expr) REPRISE_ASSIGN_(REPRISE_CONCAT(try_result_, __LINE__), lhs, expr)
#define REPRISE_ASSIGN_(result, lhs, expr)  \
  auto result = (expr);                     \
  if (!result.ok()) return result.status(); \
  lhs = std::move(result).value()
