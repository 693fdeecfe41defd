// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/traced_text.h"

#include <algorithm>

namespace reprise::jinja {

TracedText::TracedText(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin == Origin::kData) AddData(0, text_.size());
}

void TracedText::AddData(size_t begin, size_t end) {
  if (begin == end) return;
  if (!data_.empty() && data_.back().end == begin) {
    data_.back().end = end;
  } else {
    data_.push_back({begin, end});
  }
}

void TracedText::Append(std::string_view text, Origin origin) {
  if (origin == Origin::kData) AddData(text_.size(), text_.size() + text.size());
  text_ += text;
}

void TracedText::Append(std::string_view text, std::span<const TextRange> data, size_t offset) {
  const size_t base = text_.size();
  text_ += text;
  auto range = std::upper_bound(data.begin(), data.end(), offset,
                                [](size_t at, const TextRange& r) { return at < r.end; });
  for (; range != data.end() && range->begin < offset + text.size(); ++range) {
    const size_t begin = std::max(range->begin, offset) - offset;
    const size_t end = std::min(range->end, offset + text.size()) - offset;
    AddData(base + begin, base + end);
  }
}

}  // namespace reprise::jinja
