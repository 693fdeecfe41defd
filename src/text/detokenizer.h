// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace reprise {

// Detokenizer turns a stream of ids into a stream of text. After every Append the text so far is
// valid UTF-8; a code point whose bytes are spread over tokens comes out whole, with the last of
// them.
//
// SentencePiece vocabularies put a space before the first word, which is not part of the text: it
// is dropped at the start of a text, but not where text continues (a reply after a prompt whose
// last character was not a space): Options::at_start.
//
// Thread safety: none. The tokenizer must outlive it.
class Detokenizer {
 public:
  struct Options {
    bool keep_special = false;  // print special tokens by their names
    bool at_start = true;
    // Special tokens that are printed all the same. Must outlive the detokenizer.
    const std::unordered_set<int32_t>* shown = nullptr;
    // Before the text of these stands `mark`, which is no UTF-8. Must outlive the detokenizer.
    const std::unordered_set<int32_t>* marked = nullptr;
    char mark = '\xFF';
  };

  explicit Detokenizer(const Tokenizer& tokenizer) : Detokenizer(tokenizer, Options{}) {}
  Detokenizer(const Tokenizer& tokenizer, Options options)
      : tokenizer_(tokenizer), options_(options), at_start_(options.at_start) {}

  // Appends the text that `id` completes to `out`. Ids out of range add nothing.
  void Append(int32_t id, std::string* out);

  // Appends U+FFFD if the ids ended inside a code point. The detokenizer is then as new.
  void Finish(std::string* out);

 private:
  const Tokenizer& tokenizer_;
  const Options options_;
  bool at_start_;
  Utf8Stream stream_;
};

}  // namespace reprise
