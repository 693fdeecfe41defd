// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace reprise::http {

// Parses one HTTP/1.x request from bytes as they arrive. Every byte is hostile: what is malformed,
// ambiguous (two lengths, a length and chunks) or beyond the limits fails with the status to answer
// with.
//
//   kHead -> kBody -> kDone, or kFailed from anywhere
//
// Thread safety: none.
class RequestParser {
 public:
  enum class State { kHead, kBody, kDone, kFailed };

  explicit RequestParser(const Limits& limits);
  ~RequestParser();

  // Takes bytes and returns how many of them it used up; the others must be offered again with more
  // behind them. Stops after the head once, so that the caller can look at it.
  size_t Feed(std::string_view bytes);

  State state() const;

  // Of a failure: what to answer and why.
  int status() const;
  const std::string& problem() const;

  // The request without its body; what a trailer says is not among its headers. From kBody on, and
  // of a body that was refused for its size; else empty.
  const Request& head() const;

  // From kBody on.
  std::optional<uint64_t> content_length() const;  // absent: chunked or none
  size_t body_bytes() const;                       // that have arrived
  bool expects_continue() const;
  bool keep_alive() const;
  bool is_http_1_0() const;

  // REQUIRES: kDone. Without an id.
  Request Take();

 private:
  struct Beast;
  size_t FeedOnce(std::string_view bytes);

  const Limits limits_;
  std::unique_ptr<Beast> beast_;
};

}  // namespace reprise::http
