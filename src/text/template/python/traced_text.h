// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/text_range.h"

namespace reprise::jinja {

// Where text comes from. What the template itself writes may name control tokens; what it was given
// (messages, tools, a client's variables) is data, and stays text whatever it spells.
enum class Origin : uint8_t { kTemplate, kData };

// Text, and which of its bytes are data.
//
// Invariant: the ranges ascend, are not empty, do not touch, and lie within the text.
class TracedText {
 public:
  TracedText() = default;
  TracedText(std::string text, Origin origin);

  void Append(std::string_view text, Origin origin);
  // Text of which the bytes of `data` are data, counted from `offset` on: text[0] is byte `offset`
  // of what the ranges are about. They may lie outside of it.
  void Append(std::string_view text, std::span<const TextRange> data, size_t offset);
  void Append(const TracedText& other) { Append(other.text_, other.data_, 0); }
  void Reserve(size_t bytes) { text_.reserve(bytes); }

  size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  const std::vector<TextRange>& data() const { return data_; }
  std::string TakeText() { return std::move(text_); }
  std::vector<TextRange> TakeData() { return std::move(data_); }

 private:
  void AddData(size_t begin, size_t end);

  std::string text_;
  std::vector<TextRange> data_;
};

}  // namespace reprise::jinja
