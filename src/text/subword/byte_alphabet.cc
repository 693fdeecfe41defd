// SPDX-License-Identifier: Apache-2.0
#include "text/subword/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "text/unicode/classes.h"

namespace reprise {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> MakeCodes() {
  std::array<uint16_t, 256> codes{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    codes[byte] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return codes;
}

constexpr int kCodeCount = 0x100 + 68;

constexpr std::array<int16_t, kCodeCount> MakeBytes() {
  std::array<int16_t, kCodeCount> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  const auto codes = MakeCodes();
  for (int byte = 0; byte < 256; ++byte) bytes[codes[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr auto kCodes = MakeCodes();  // byte -> code point
constexpr auto kBytes = MakeBytes();  // code point -> byte, or -1

}  // namespace

bool AppendAlphabetBytes(std::string_view text, std::string* out) {
  const size_t size_before = out->size();
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const unicode::DecodedChar c = unicode::DecodeChar(at, end);
    const bool invalid = c.length == 1 && static_cast<uint8_t>(*at) >= 0x80;
    if (invalid || c.code >= kCodeCount || kBytes[c.code] < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(kBytes[c.code]));
    at += c.length;
  }
  return true;
}

void AppendAlphabetText(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) AppendUtf8(kCodes[static_cast<uint8_t>(byte)], out);
}

}  // namespace reprise
