// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/rwkv.h"

#include <charconv>
#include <vector>

#include "base/utf8.h"

namespace reprise {
namespace {

constexpr size_t kPaddedSize = 65536;

bool ParseNumber(std::string_view text, size_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// The value of `digits` hexadecimal digits at the start of `text`.
bool ParseHex(std::string_view text, size_t digits, uint32_t* value) {
  if (text.size() < digits) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, *value, 16);
  return error == std::errc() && end == text.data() + digits;
}

// "12 'text' 4" -> id and bytes.
bool ParseLine(std::string_view line, size_t* id, std::string* bytes) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  size_t length = 0;
  if (first == line.npos || last <= first + 1) return false;
  if (!ParseNumber(line.substr(0, first), id)) return false;
  if (!ParseNumber(line.substr(last + 1), &length)) return false;
  std::string_view literal = line.substr(first + 1, last - first - 1);
  const bool is_bytes = literal.starts_with('b');
  if (is_bytes) literal.remove_prefix(1);
  if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"')) return false;
  if (literal.back() != literal[0]) return false;
  bytes->clear();
  return AppendPythonLiteral(literal.substr(1, literal.size() - 2), is_bytes, bytes) &&
         bytes->size() == length && length > 0;
}

}  // namespace

bool AppendPythonLiteral(std::string_view inside, bool is_bytes, std::string* out) {
  for (size_t at = 0; at < inside.size(); ++at) {
    if (inside[at] != '\\') {
      out->push_back(inside[at]);
      continue;
    }
    if (++at >= inside.size()) return false;
    static constexpr std::string_view kLetters = "tnrabfv0\\'\"";
    static constexpr std::string_view kMeanings("\t\n\r\a\b\f\v\0\\'\"", kLetters.size());
    if (const size_t known = kLetters.find(inside[at]); known != kLetters.npos) {
      out->push_back(kMeanings[known]);
      continue;
    }
    const char kind = inside[at];
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (digits == 0 || !ParseHex(inside.substr(at + 1), digits, &code)) return false;
    at += digits;
    if (is_bytes) {
      if (kind != 'x') return false;
      out->push_back(static_cast<char>(code));
    } else {
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
      AppendUtf8(code, out);
    }
  }
  return true;
}

Result<VocabSpec> ParseRwkvVocab(std::string_view file) {
  std::vector<std::string> tokens(1, "<|endoftext|>");
  std::string bytes;
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    size_t id = 0;
    if (!ParseLine(line, &id, &bytes) || id == 0 || id >= kPaddedSize) {
      return DataLoss("the RWKV vocabulary is broken in line " + std::to_string(number));
    }
    if (id >= tokens.size()) tokens.resize(id + 1);
    if (!tokens[id].empty()) {
      return DataLoss("the RWKV vocabulary has the id " + std::to_string(id) + " twice");
    }
    tokens[id] = bytes;
  }
  VocabSpec spec;
  spec.model = VocabSpec::Model::kRwkvWorld;
  for (const std::string& token : tokens) {
    spec.tokens.Add(token);
    spec.kinds.push_back(token.empty() ? TokenKind::kUnused : TokenKind::kNormal);
  }
  spec.kinds[0] = TokenKind::kControl;
  spec.added.push_back({.id = 0, .text = tokens[0], .special = true});
  spec.eos_ids = {0};
  spec.bos_id = 0;
  return spec;
}

}  // namespace reprise
