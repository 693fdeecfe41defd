// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

// RESP2, what Redis and Valkey speak: a reply is a line, and behind "$n" n bytes, behind "*n" n
// replies. Every byte comes from outside: lines, sizes, counts and depth have bounds.
enum class RespKind : uint8_t { kText, kError, kNumber, kBulk, kArray, kNull };

// The line that a reply begins with.
struct RespHead {
  RespKind kind = RespKind::kNull;
  int64_t number = 0;     // kNumber: itself; kBulk: bytes that follow; kArray: replies that follow
  std::string_view text;  // kText, kError
  size_t bytes = 0;       // the line with its end
};

inline constexpr size_t kRespLineMax = 1024;
inline constexpr int64_t kRespBulkMax = int64_t{1} << 29;  // Redis's own bound
inline constexpr int64_t kRespItemsMax = 1 << 20;

// Nothing: the line has no end yet.
Result<std::optional<RespHead>> ParseRespHead(std::string_view bytes);

// A command: its name and arguments, as Redis wants them.
void AppendCommand(std::string* out, std::span<const std::string_view> words);

struct RespReply {
  RespKind kind = RespKind::kNull;
  int64_t number = 0;
  std::string text;  // kText, kError, kBulk
  std::vector<RespReply> items;

  bool is_error() const { return kind == RespKind::kError; }
};

// What an error says. A value of another kind than was asked for is kDataLoss: somebody else's lies
// there. All else is the server's fault.
Status StatusOfError(std::string_view text);

// Where replies come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At least one byte, at most all that fit. Fails where there are no more, or not in time.
  virtual Result<size_t> ReadSome(std::span<std::byte> into) = 0;
};

// RespReader takes replies off a source, one after the other. After an error nothing that follows
// means anything: the source is to be dropped.
//
// Thread safety: none.
class RespReader {
 public:
  explicit RespReader(ByteSource* source) : source_(source), buffer_(kBufferBytes) {}

  // A whole reply, of at most `bytes_max` bytes with all that is in it.
  Result<RespReply> Read(size_t bytes_max);

  // A bulk string that is read by its parts: its size (nothing: null), then exactly so many bytes
  // with Take, then End. A reply of another kind is refused; an error with what it says.
  Result<std::optional<size_t>> BeginBulk();
  Status Take(std::span<std::byte> out);
  Status EndBulk();

 private:
  static constexpr size_t kBufferBytes = size_t{64} << 10;
  static constexpr int kDepthMax = 4;

  Result<RespHead> ReadHead();
  Result<RespReply> ReadNested(int depth, size_t* bytes_left);
  std::string_view held() const {
    return {reinterpret_cast<const char*>(buffer_.data()) + begin_, end_ - begin_};
  }

  ByteSource* const source_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  // of what was read and not taken
  size_t end_ = 0;
};

}  // namespace reprise
