// SPDX-License-Identifier: Apache-2.0
#include "text/chat_prompt.h"

#include <algorithm>

namespace reprise {
namespace {

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

Result<ChatPrompt> ChatEncoder::Encode(const RenderedChat& chat, EncodeMeter meter) const {
  ChatPrompt prompt;
  REPRISE_TRY(tokenizer_->EncodePrompt(chat.text, chat.data, &prompt.ids, &meter));
  prompt.id_count = meter.id_count;
  std::vector<size_t> ends;
  ends.reserve(prompt.ids.size());
  for (const int32_t id : prompt.ids) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + tokenizer_->TokenBytes(id).size());
  }
  for (const MessageBoundary& boundary : chat.boundaries) {
    const int32_t position = PositionOf(ends, chat.text.size(), boundary.byte_offset);
    const int32_t last = prompt.boundaries.empty() ? 0 : prompt.boundaries.back().position;
    if (position > last) prompt.boundaries.push_back({boundary.message_count, position});
  }
  return prompt;
}

}  // namespace reprise
