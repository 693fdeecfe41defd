// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::jinja {

// Python's str operations on UTF-8 text. Positions and widths count code points.
// REQUIRES: every text is valid UTF-8. Costs: linear in the texts; no pattern makes a search
// quadratic.

// The byte offset of the first (last) occurrence in text[from..], or npos.
size_t FindFirst(std::string_view text, std::string_view part, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view part);

enum class Side { kLeft, kRight, kBoth };

// strip(), lstrip(), rstrip(): without `chars`, white space.
std::string_view Strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);

// split() and rsplit(): at `separator` (not empty), or at runs of white space; at most `splits`
// cuts, if not negative.
std::vector<std::string_view> Split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t splits);
std::vector<std::string_view> SplitFromRight(std::string_view text,
                                             std::optional<std::string_view> separator,
                                             int64_t splits);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// What replace() finds: where `part` is, from left to right, without overlaps; at most `count`
// times, if not negative. An empty part is found around every character.
std::vector<size_t> FindAll(std::string_view text, std::string_view part, int64_t count);
// The number of bytes replace() will yield, to pay for them first.
size_t ReplacedBytes(std::string_view text, std::string_view from, std::string_view to,
                     int64_t count);
size_t CountOf(std::string_view text, std::string_view part);

// With & < > " ' as HTML entities, as Markup has them.
std::string EscapedHtml(std::string_view text);

}  // namespace reprise::jinja
