// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// What a SentencePiece model says of itself, in its own file or in GGUF metadata.
struct SentencePieceSpec {
  bool unigram = false;  // else BPE
  StringTable tokens;
  std::vector<double> scores;
  std::vector<TokenKind> kinds;
  std::string chars_map;  // precompiled normalisation, or empty
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = false;
  bool keep_invalid = true;  // bytes that are not UTF-8; else U+FFFD for each, as the library does
  bool add_bos = true;
  bool add_eos = false;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t unknown_id = -1;
  int32_t pad_id = -1;
};

// Control tokens become special added tokens, user-defined ones plain added tokens.
Result<VocabSpec> VocabFromSentencePiece(SentencePieceSpec model);

// Reads a SentencePiece file (tokenizer.model): a protocol buffer.
Result<VocabSpec> ParseSentencePieceModel(std::string_view file);

// Added tokens from the kinds: what GGUF and SentencePiece files know of them.
void AddTokensByKind(VocabSpec* spec);

}  // namespace reprise
