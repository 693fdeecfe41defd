// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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
  size_t id_count = 0;               // about, if the ids are incomplete (EncodeMeter)
};

// Encodes what a chat template rendered. Only the template's own text can be control tokens: what
// people and tools wrote (RenderedChat::data) is text, whatever it spells. The template says how a
// prompt begins: nothing is put before it.
//
// Thread safety: immutable; any number of threads may use one.
class ChatEncoder {
 public:
  // REQUIRES: the tokenizer outlives it.
  explicit ChatEncoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  Result<ChatPrompt> Encode(const RenderedChat& chat, EncodeMeter meter = {}) const;

 private:
  const Tokenizer* tokenizer_;
};

}  // namespace reprise
