// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

// MessagePack, as far as events need it: values in, bytes out, each in its shortest form. The
// elements of an array follow it.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string* out) : out_(*out) {}

  MsgpackWriter& Nil();
  MsgpackWriter& Uint(uint64_t value);
  MsgpackWriter& Double(double value);
  MsgpackWriter& String(std::string_view text);  // REQUIRES: fewer than 2^32 bytes
  MsgpackWriter& Array(size_t count);            // REQUIRES: fewer than 2^32 elements

 private:
  void Put(uint8_t tag, uint64_t value, int bytes);

  std::string& out_;
};

}  // namespace reprise
