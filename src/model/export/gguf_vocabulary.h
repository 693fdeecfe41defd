// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/vocab/spec.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

// A vocabulary for models that have none: every byte is a token, a few special tokens follow, the
// rest up to `size` is unused. Any text can be encoded, and a chat template of the ChatML kind
// makes the model answer to `reprise run`. REQUIRES: size >= kByteVocabularyMin.
inline constexpr int64_t kByteVocabularyMin = 260;
void PutByteVocabulary(int64_t size, GgufWriter* out);

// A real vocabulary under the names that llama.cpp gives it, with unused tokens up to `size`. Only
// byte-level BPE with a pre-tokenizer that has a name there; others are refused.
// `chat_template` may be empty.
Status PutVocabulary(const VocabSpec& vocab, std::string_view chat_template, int64_t size,
                     GgufWriter* out);

}  // namespace reprise
