// SPDX-License-Identifier: Apache-2.0
#include "grammar/parse/token_trie.h"

#include <algorithm>

#include "base/utf8.h"
#include "grammar/parse/plain.h"

namespace reprise::grammar {
namespace {

constexpr int kLongestPlain = 1 << 30;
constexpr int kPartChars[] = {0, 4, 8, kPlainNear, kPlainFar, kLongestPlain};

// The number of characters, or 0 if not all of them are plain.
int PlainChars(std::string_view text) {
  int chars = 0;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const auto first = static_cast<uint8_t>(text[0]);
    if (length == 0 || first < 0x20 || first == '"' || first == '\\') return 0;
    text.remove_prefix(length);
    ++chars;
  }
  return chars;
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> bytes, std::span<const int32_t> ends)
    : vocab_size_(bytes.size()), ends_(ends.begin(), ends.end()) {
  text_begin_.reserve(bytes.size() + 1);
  text_begin_.push_back(0);
  for (const std::string_view token : bytes) {
    if (token.size() <= kTokenBytesMax) text_.insert(text_.end(), token.begin(), token.end());
    text_begin_.push_back(static_cast<uint32_t>(text_.size()));
  }
  std::array<std::vector<Entry>, std::size(kPartChars)> entries;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const std::string_view text = this->bytes(token);
    if (text.empty() || std::ranges::find(ends_, token) != ends_.end()) continue;
    if (text.size() == 1) single_bytes_.Add(static_cast<uint8_t>(text[0]));
    depth_max_ = std::max(depth_max_, text.size());
    const int chars = PlainChars(text);
    size_t part = 0;
    while (chars > kPartChars[part]) ++part;
    entries[part].push_back({text, token});
  }
  parts_.resize(std::size(kPartChars));
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].chars_max = kPartChars[i];
    BuildPart(std::move(entries[i]), &parts_[i]);
  }
}

std::string_view TokenTrie::bytes(int32_t token) const {
  const auto at = static_cast<size_t>(token);
  return {text_.data() + text_begin_[at], text_begin_[at + 1] - text_begin_[at]};
}

template <typename VisitFn>
void TokenTrie::Follow(const Part& part, std::string_view text, VisitFn&& visit) {
  uint32_t at = 0;
  auto end = static_cast<uint32_t>(part.nodes.size());
  for (size_t depth = 1; depth <= text.size() && at < end;) {
    const Node& node = part.nodes[at];
    if (node.byte != static_cast<uint8_t>(text[depth - 1])) {
      at = node.end;
      continue;
    }
    visit(node, depth);
    // Tokens of the same bytes are nodes beside each other: the last of them has what is longer.
    if (node.end == at + 1 && node.end < end && part.nodes[node.end].depth == depth &&
        part.nodes[node.end].byte == node.byte) {
      at = node.end;
      continue;
    }
    ++depth;
    ++at;
    end = node.end;
  }
}

int32_t TokenTrie::LongestIn(std::string_view text) const {
  int32_t token = -1;
  size_t longest = 0;
  for (const Part& part : parts_) {
    Follow(part, text, [&](const Node& node, size_t depth) {
      if (node.token < 0 || depth <= longest) return;
      token = node.token;
      longest = depth;
    });
  }
  return token;
}

bool TokenTrie::BeginsLonger(std::string_view text) const {
  bool longer = false;
  for (const Part& part : parts_) {
    Follow(part, text, [&](const Node& node, size_t depth) {
      const auto at = static_cast<uint32_t>(&node - part.nodes.data());
      longer |= depth == text.size() && node.end > at + 1;
    });
  }
  return longer;
}

void TokenTrie::BuildPart(std::vector<Entry> entries, Part* part) {
  part->mask.assign((vocab_size_ + 63) / 64, 0);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
  std::vector<uint32_t> open;  // nodes on the path of the last entry
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      part->nodes[open.back()].end = static_cast<uint32_t>(part->nodes.size());
    }
  };
  for (const Entry& entry : entries) {
    part->mask[static_cast<size_t>(entry.token) / 64] |= uint64_t{1} << (entry.token & 63);
    size_t shared = 0;
    while (shared < std::min(last.size(), entry.bytes.size()) &&
           last[shared] == entry.bytes[shared]) {
      ++shared;
    }
    // The same bytes again: a second last node beside the first.
    if (shared == entry.bytes.size() && shared == last.size()) --shared;
    close(shared);
    for (size_t depth = shared; depth < entry.bytes.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(part->nodes.size()));
      part->nodes.push_back({.end = 0,
                             .token = -1,
                             .rank = static_cast<uint32_t>(part->tokens.size()),
                             .depth = static_cast<uint16_t>(depth + 1),
                             .byte = static_cast<uint8_t>(entry.bytes[depth]),
                             .chars = Node::kNotPlain});
    }
    part->nodes.back().token = entry.token;
    part->tokens.push_back(entry.token);
    last = entry.bytes;
  }
  close(0);
  if (part->chars_max > 0) CountChars(part);
}

// Tokens of plain parts are whole characters, so children of a node all begin one, or none does.
void TokenTrie::CountChars(Part* part) {
  std::vector<Node>& nodes = part->nodes;
  const auto begins_char = [](const Node& node) { return (node.byte & 0xC0) != 0x80; };
  std::vector<int> longest(nodes.size(), 0);
  for (size_t at = nodes.size(); at-- > 0;) {
    for (size_t child = at + 1; child < nodes[at].end; child = nodes[child].end) {
      longest[at] = std::max(longest[at], longest[child] + (begins_char(nodes[child]) ? 1 : 0));
    }
    const bool whole = nodes[at].end == at + 1 || begins_char(nodes[at + 1]);
    if (whole && longest[at] < Node::kNotPlain) nodes[at].chars = static_cast<uint8_t>(longest[at]);
  }
}

}  // namespace reprise::grammar
