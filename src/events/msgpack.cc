// SPDX-License-Identifier: Apache-2.0
#include "events/msgpack.h"

#include <bit>

namespace reprise {

// A tag, then the last `bytes` bytes of the value, the highest first.
void MsgpackWriter::Put(uint8_t tag, uint64_t value, int bytes) {
  out_.push_back(static_cast<char>(tag));
  for (int i = bytes - 1; i >= 0; --i) out_.push_back(static_cast<char>(value >> (8 * i)));
}

MsgpackWriter& MsgpackWriter::Nil() {
  Put(0xc0, 0, 0);
  return *this;
}

MsgpackWriter& MsgpackWriter::Uint(uint64_t value) {
  if (value < 0x80) {
    Put(static_cast<uint8_t>(value), 0, 0);
  } else if (value <= UINT8_MAX) {
    Put(0xcc, value, 1);
  } else if (value <= UINT16_MAX) {
    Put(0xcd, value, 2);
  } else if (value <= UINT32_MAX) {
    Put(0xce, value, 4);
  } else {
    Put(0xcf, value, 8);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::Double(double value) {
  Put(0xcb, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

MsgpackWriter& MsgpackWriter::String(std::string_view text) {
  if (text.size() < 32) {
    Put(static_cast<uint8_t>(0xa0 | text.size()), 0, 0);
  } else if (text.size() <= UINT8_MAX) {
    Put(0xd9, text.size(), 1);
  } else if (text.size() <= UINT16_MAX) {
    Put(0xda, text.size(), 2);
  } else {
    Put(0xdb, text.size(), 4);
  }
  out_.append(text);
  return *this;
}

MsgpackWriter& MsgpackWriter::Array(size_t count) {
  if (count < 16) {
    Put(static_cast<uint8_t>(0x90 | count), 0, 0);
  } else if (count <= UINT16_MAX) {
    Put(0xdc, count, 2);
  } else {
    Put(0xdd, count, 4);
  }
  return *this;
}

}  // namespace reprise
