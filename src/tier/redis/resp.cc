// SPDX-License-Identifier: Apache-2.0
#include "tier/redis/resp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace reprise {
namespace {

Status NotResp(const char* what) {
  return Internal(std::string("the answer is not Redis's protocol: ") + what);
}

bool ParseNumber(std::string_view text, int64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<std::optional<RespHead>> ParseRespHead(std::string_view bytes) {
  const size_t end = bytes.substr(0, kRespLineMax).find('\n');
  if (end == std::string_view::npos) {
    if (bytes.size() >= kRespLineMax) return NotResp("a line without end");
    return std::optional<RespHead>();
  }
  if (end < 2 || bytes[end - 1] != '\r') return NotResp("a line that does not end as it should");
  RespHead head;
  head.bytes = end + 1;
  head.text = bytes.substr(1, end - 2);
  const auto counted = [&](RespKind kind, int64_t most) -> Result<std::optional<RespHead>> {
    if (!ParseNumber(head.text, &head.number) || head.number < -1 || head.number > most) {
      return NotResp("a count that cannot be");
    }
    head.kind = head.number < 0 ? RespKind::kNull : kind;
    head.text = {};
    return std::optional(head);
  };
  switch (bytes[0]) {
    case '+':
      head.kind = RespKind::kText;
      return std::optional(head);
    case '-':
      head.kind = RespKind::kError;
      return std::optional(head);
    case ':':
      head.kind = RespKind::kNumber;
      if (!ParseNumber(head.text, &head.number)) return NotResp("a broken number");
      head.text = {};
      return std::optional(head);
    case '$':
      return counted(RespKind::kBulk, kRespBulkMax);
    case '*':
      return counted(RespKind::kArray, kRespItemsMax);
    default:
      return NotResp("an unknown kind");
  }
}

Status StatusOfError(std::string_view text) {
  std::string sentence = "Redis says: " + std::string(text);
  if (text.starts_with("WRONGTYPE")) return DataLoss(std::move(sentence));
  return Internal(std::move(sentence));
}

void AppendCommand(std::string* out, std::span<const std::string_view> words) {
  const auto line = [&](char kind, size_t number) {
    out->push_back(kind);
    out->append(std::to_string(number));
    out->append("\r\n");
  };
  line('*', words.size());
  for (const std::string_view word : words) {
    line('$', word.size());
    out->append(word);
    out->append("\r\n");
  }
}

Result<RespHead> RespReader::ReadHead() {
  for (;;) {
    REPRISE_ASSIGN(const std::optional<RespHead> head, ParseRespHead(held()));
    if (head) {
      begin_ += head->bytes;  // its text stays where it is until the next call
      return *head;
    }
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    REPRISE_ASSIGN(const size_t got, source_->ReadSome(std::span(buffer_).subspan(end_)));
    end_ += got;
  }
}

Status RespReader::Take(std::span<std::byte> out) {
  const size_t here = std::min(out.size(), end_ - begin_);
  if (here > 0) std::memcpy(out.data(), buffer_.data() + begin_, here);
  begin_ += here;
  out = out.subspan(here);
  while (!out.empty()) {
    REPRISE_ASSIGN(const size_t got, source_->ReadSome(out));
    out = out.subspan(got);
  }
  return OkStatus();
}

Status RespReader::EndBulk() {
  std::byte end[2];
  REPRISE_TRY(Take(end));
  const bool right = end[0] == std::byte{'\r'} && end[1] == std::byte{'\n'};
  return right ? OkStatus() : NotResp("a value that does not end where it should");
}

Result<std::optional<size_t>> RespReader::BeginBulk() {
  REPRISE_ASSIGN(const RespHead head, ReadHead());
  if (head.kind == RespKind::kNull) return std::optional<size_t>();
  if (head.kind == RespKind::kError) return StatusOfError(head.text);
  if (head.kind != RespKind::kBulk) return NotResp("something else than a value");
  return std::optional(static_cast<size_t>(head.number));
}

Result<RespReply> RespReader::Read(size_t bytes_max) { return ReadNested(0, &bytes_max); }

Result<RespReply> RespReader::ReadNested(int depth, size_t* bytes_left) {
  REPRISE_ASSIGN(const RespHead head, ReadHead());
  RespReply reply;
  reply.kind = head.kind;
  reply.number = head.number;
  reply.text = head.text;
  size_t bytes = head.bytes;
  if (head.kind == RespKind::kBulk) bytes += static_cast<size_t>(head.number);
  if (bytes > *bytes_left) return NotResp("more than was asked for");
  *bytes_left -= bytes;
  if (head.kind == RespKind::kBulk) {
    reply.text.resize(static_cast<size_t>(head.number));
    REPRISE_TRY(Take(std::as_writable_bytes(std::span(reply.text))));
    REPRISE_TRY(EndBulk());
  }
  if (head.kind != RespKind::kArray) return reply;
  if (depth == kDepthMax) return NotResp("lists in lists in lists");
  for (int64_t i = 0; i < head.number; ++i) {
    REPRISE_ASSIGN(RespReply item, ReadNested(depth + 1, bytes_left));
    reply.items.push_back(std::move(item));
  }
  return reply;
}

}  // namespace reprise
