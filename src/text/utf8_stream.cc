// SPDX-License-Identifier: Apache-2.0
#include "text/utf8_stream.h"

#include <algorithm>

#include "base/utf8.h"

namespace reprise {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The length of the longest prefix of `bytes`, at most 3, that is a proper beginning of some code
// point: 0 if the first byte begins none. REQUIRES: `bytes` does not begin with a whole one.
size_t BegunLength(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes.size() < 2) return 1;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  if (need == 2 || byte(1) < low || byte(1) > high) return 1;
  if (bytes.size() < 3 || need == 3 || (byte(2) & 0xC0) != 0x80) return 2;
  return 3;
}

}  // namespace

void Utf8Stream::Append(std::string_view bytes, std::string* out) {
  // The held beginning is completed byte by byte; it needs at most three more.
  while (held_count_ > 0 && !bytes.empty()) {
    held_[held_count_] = bytes[0];
    const std::string_view joined(held_, held_count_ + 1);
    if (Utf8SequenceLength(joined) != 0) {
      out->append(joined);
      held_count_ = 0;
      bytes.remove_prefix(1);
    } else if (BegunLength(joined) == joined.size()) {
      ++held_count_;
      bytes.remove_prefix(1);
    } else {
      out->append(kReplacement);
      held_count_ = 0;
    }
  }
  while (!bytes.empty()) {
    size_t valid = 0;
    while (valid < bytes.size()) {
      const size_t length = Utf8SequenceLength(bytes.substr(valid));
      if (length == 0) break;
      valid += length;
    }
    out->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const size_t begun = BegunLength(bytes);
    if (begun == bytes.size()) {
      std::copy(bytes.begin(), bytes.end(), held_);
      held_count_ = begun;
      return;
    }
    out->append(kReplacement);
    bytes.remove_prefix(std::max<size_t>(begun, 1));
  }
}

void Utf8Stream::Finish(std::string* out) {
  if (held_count_ > 0) out->append(kReplacement);
  held_count_ = 0;
}

}  // namespace reprise
