// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "text/vocab/spec.h"
#include "text/vocab/tokenizer_config.h"

namespace reprise {

// What a Hugging Face folder says about text.
struct TokenizerFolder {
  VocabSpec vocab;
  std::vector<ChatTemplateSource> chat_templates;  // the default one first; may be empty
};

// Whether a folder has a vocabulary: one of those below.
bool HasVocab(const std::string& folder);

// Reads tokenizer.json (or, where there is none, Mistral's tekken.json or SentencePiece's
// tokenizer.model) and, where they exist, tokenizer_config.json, generation_config.json and
// chat_template.jinja.
Result<TokenizerFolder> ReadTokenizerFolder(const std::string& folder);

// Reads a vocabulary alone, by the name of the file: a folder as above, *.json (tokenizer.json
// or tekken.json), *.model* (SentencePiece) or *.txt (RWKV World).
Result<VocabSpec> ReadVocabFile(const std::string& path);

}  // namespace reprise
