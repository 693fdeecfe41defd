// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// Many strings in one buffer: a vocabulary of 250,000 tokens is three allocations, not 250,000.
// Views stay valid until the next Add.
class StringTable {
 public:
  void Reserve(size_t count, size_t bytes) {
    ends_.reserve(count);
    text_.reserve(bytes);
  }

  void Add(std::string_view text) {
    text_.append(text);
    ends_.push_back(text_.size());
  }

  // REQUIRES: index < size().
  std::string_view operator[](size_t index) const {
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    return {text_.data() + begin, ends_[index] - begin};
  }

  size_t size() const { return ends_.size(); }
  size_t bytes() const { return text_.size(); }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

}  // namespace reprise
