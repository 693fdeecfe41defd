// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::hub {

// Status and headers of an answer.
struct ResponseHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  // The first header of that name, which is in lower case; null: there is none.
  const std::string* Find(std::string_view name) const;
  // A header that is a whole number; nothing if it is absent or anything else.
  std::optional<uint64_t> Number(std::string_view name) const;
};

// Reads one answer of HTTP/1.1 (or 1.0) from bytes that come in any pieces. Every byte is hostile.
//
// 1. A head takes at most 64 KiB and 128 headers; heads of status 1xx are skipped, eight at most.
// 2. A body is as long as Content-Length says, or chunked, or ends with the connection. Two lengths
//    that differ, a length beside chunks and any other coding are refused.
// 3. Memory is bounded by the head and by the bytes that are fed.
//
// Thread safety: none.
class ResponseParser {
 public:
  enum class State { kHead, kBody, kDone, kFailed };

  // `has_body`: false for answers to HEAD and CONNECT, which end with their head.
  explicit ResponseParser(bool has_body = true) : has_body_(has_body) {}

  // Takes all of `bytes` and appends what belongs to the body to `body`. What comes after the
  // answer is dropped.
  void Feed(std::string_view bytes, std::string* body);
  // The connection has ended: so has a body without a length; any other answer was cut.
  void End();

  State state() const { return state_; }
  // REQUIRES: the state is kBody or kDone.
  const ResponseHead& head() const { return head_; }
  // REQUIRES: the state is kFailed.
  const std::string& error() const { return error_; }

 private:
  enum class Framing { kLength, kChunked, kUntilEnd };
  enum class Chunk { kSize, kData, kDataEnd, kTrailer };

  void Fail(const char* why);
  size_t FeedHead(std::string_view bytes);
  bool ParseHead(std::string_view text);
  bool ParseHeader(std::string_view line);
  void ChooseFraming();
  size_t FeedChunks(std::string_view bytes, std::string* body);
  void EndChunkLine();

  const bool has_body_;
  State state_ = State::kHead;
  std::string line_;  // head, or line of a chunk, so far
  int informational_ = 0;
  ResponseHead head_;
  Framing framing_ = Framing::kUntilEnd;
  Chunk chunk_ = Chunk::kSize;
  uint64_t left_ = 0;    // bytes of the body, or of the chunk
  size_t trailers_ = 0;  // bytes of trailers
  std::string error_;
};

}  // namespace reprise::hub
