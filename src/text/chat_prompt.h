// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/template/chat_template.h"
#include "text/tokenizer.h"

namespace reprise {

// A rendered conversation as token ids.
struct ChatPrompt {
  // After `position` ids stands what the first `message_count` messages rendered to, whatever
  // follows them.
  struct Boundary {
    size_t message_count = 0;
    int32_t position = 0;
  };

  std::vector<int32_t> ids;
  std::vector<Boundary> boundaries;  // ascending, distinct positions
};

// Encodes what a chat template rendered. Special tokens of the template are those tokens; written
// in `contents` (the texts of the messages, in order: they come from people and tools) they are
// text. The template says how a prompt begins: nothing is put before it.
Result<ChatPrompt> EncodeChat(const Tokenizer& tokenizer, const RenderedChat& chat,
                              std::span<const std::string_view> contents);

}  // namespace reprise
