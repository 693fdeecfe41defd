// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// GgufVocab holds the keys "tokenizer.ggml.*" of a GGUF file as they stand there. Whoever reads the
// file fills it in; what is absent stays empty.
struct GgufVocab {
  std::string model;           // "gpt2", "llama", "t5", "rwkv", "gemma4"
  std::string pre;             // the pre-tokenizer of "gpt2"
  StringTable tokens;          // [tokens]
  std::vector<float> scores;   // [tokens] or empty
  std::vector<int32_t> types;  // [tokens] of TokenKind or empty
  StringTable merges;          // "left right"
  std::string chars_map;       // precompiled_charsmap
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::optional<uint32_t> bos_id;
  std::optional<uint32_t> eos_id;
  std::optional<uint32_t> eot_id;  // end of turn
  std::optional<uint32_t> eom_id;  // end of message
  std::optional<uint32_t> unknown_id;
  std::optional<uint32_t> padding_id;
};

// Fails with kDataLoss if the keys contradict each other, with kUnimplemented and its name for a
// model or a pre-tokenizer that is not known here.
//
// Qwen's tokenizers declare NFC, which GGUF cannot say: it is applied for their pre-tokenizers, so
// that a model has the same ids from either kind of file. (llama.cpp does not.)
Result<VocabSpec> VocabFromGguf(GgufVocab gguf);

// The steps of a pre-tokenizer by the name that GGUF files use, and what else the name implies.
struct GgufPreTokenizer {
  std::vector<SplitStep> steps;
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
};
Result<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name);

}  // namespace reprise
