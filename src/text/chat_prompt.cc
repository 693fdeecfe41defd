// SPDX-License-Identifier: Apache-2.0
#include "text/chat_prompt.h"

#include <algorithm>

namespace reprise {
namespace {

// Bytes [begin, end) of the rendered text that a message brought in.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Whether encoding `text` as part of a template would make special tokens of it.
Result<bool> NamesSpecialTokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> plain;
  std::vector<int32_t> parsed;
  REPRISE_TRY(tokenizer.Encode(text, {false, false}, &plain));
  REPRISE_TRY(tokenizer.Encode(text, {false, true}, &parsed));
  return plain != parsed;
}

// Where the contents that name special tokens stand in the rendered text. Templates trim contents,
// so the trimmed text is looked for. One that is not found was left out by the template (old
// thinking) or rewritten beyond recognition; what a template made of it is the template's.
Result<std::vector<Range>> FindDangerous(const Tokenizer& tokenizer, std::string_view text,
                                         std::span<const std::string_view> contents) {
  std::vector<Range> ranges;
  size_t from = 0;
  for (const std::string_view content : contents) {
    const std::string_view wanted = Trimmed(content);
    if (wanted.empty()) continue;
    const size_t at = text.find(wanted, from);
    if (at == std::string_view::npos) continue;
    from = at + wanted.size();
    REPRISE_ASSIGN(const bool dangerous, NamesSpecialTokens(tokenizer, wanted));
    if (dangerous) ranges.push_back({at, from});
  }
  return ranges;
}

// How many ids the text up to byte `offset` takes. Ids may stand for a few bytes more than the text
// has (a space that SentencePiece puts in front), or for other bytes (normalisation); then the
// position is a little early, which costs nothing but a few tokens.
int32_t PositionOf(const std::vector<size_t>& ends, size_t text_size, size_t offset) {
  const size_t total = ends.empty() ? 0 : ends.back();
  const size_t slack = total > text_size ? total - text_size : 0;
  const auto after = std::upper_bound(ends.begin(), ends.end(), offset + slack);
  return int32_t(after - ends.begin());
}

}  // namespace

Result<ChatPrompt> EncodeChat(const Tokenizer& tokenizer, const RenderedChat& chat,
                              std::span<const std::string_view> contents) {
  const std::string_view text = chat.text;
  REPRISE_ASSIGN(const std::vector<Range> dangerous, FindDangerous(tokenizer, text, contents));
  ChatPrompt prompt;
  size_t done = 0;
  for (const Range& range : dangerous) {
    REPRISE_TRY(
        tokenizer.Encode(text.substr(done, range.begin - done), {false, true}, &prompt.ids));
    REPRISE_TRY(tokenizer.Encode(text.substr(range.begin, range.end - range.begin), {false, false},
                                 &prompt.ids));
    done = range.end;
  }
  REPRISE_TRY(tokenizer.Encode(text.substr(done), {false, true}, &prompt.ids));

  std::vector<size_t> ends;
  ends.reserve(prompt.ids.size());
  for (const int32_t id : prompt.ids) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + tokenizer.TokenBytes(id).size());
  }
  for (const MessageBoundary& boundary : chat.boundaries) {
    const int32_t position = PositionOf(ends, text.size(), boundary.byte_offset);
    const int32_t last = prompt.boundaries.empty() ? 0 : prompt.boundaries.back().position;
    if (position > last) prompt.boundaries.push_back({boundary.message_count, position});
  }
  return prompt;
}

}  // namespace reprise
