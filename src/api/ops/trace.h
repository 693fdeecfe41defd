// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "http/message.h"

namespace reprise::api {

// Which trace a request belongs to (W3C Trace Context).
struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16, of the caller's span; empty: the trace begins here
  bool sampled = true;    // false: the caller does not keep it
};

// Reads "00-<trace id>-<parent id>-<flags>". Nothing if it is anything else.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
// That of the request's header; without one that is well-formed, a new trace.
TraceContext ReadTrace(const http::Request& request);

// A reply and the times of its phases, one behind the other: queue, look-up, load, prefill, decode.
struct ReplyTrace {
  TraceContext context;
  std::string request_id;
  std::string path;
  std::string model;
  std::string tenant;
  int64_t begin_unix_ns = 0;
  int64_t total_ns = 0;
  int64_t queue_ns = 0;
  int64_t look_up_ns = 0;
  int64_t load_ns = 0;  // from lower tiers, and into place
  int64_t prefill_ns = 0;
  int64_t decode_ns = 0;
  int64_t prompt_tokens = 0;
  int64_t used_tokens = 0;  // of them, from the cache
  int64_t reply_tokens = 0;
  std::string_view reason;  // why the rest was computed
  std::string_view finish;  // how the reply ended
  std::string error;        // empty: it did not fail

  // The phases and counts of a reply's first choice.
  void Describe(const Completion& completion);
};

// Takes what is to be shown elsewhere. Thread safety: Add from any thread; it must be quick.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void Add(ReplyTrace trace) = 0;
};

}  // namespace reprise::api
