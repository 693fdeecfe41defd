// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

namespace reprise {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kDataLoss:
      return "data_loss";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kResourceExhausted:
      return "resource_exhausted";
    case StatusCode::kFailedPrecondition:
      return "failed_precondition";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::Annotate(const std::string& prefix) const {
  return ok() ? *this : Status(code_, prefix + ": " + message_);
}

Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace reprise
