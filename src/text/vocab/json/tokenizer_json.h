// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// Reads a Hugging Face tokenizer.json, or a tekken.json (tekken.h), by what it holds. Fails with
// kDataLoss if the file is broken, with kUnimplemented and the name of the part if it uses
// something that is not supported here; it never guesses, because a tokenizer that is nearly right
// is wrong.
//
// Supported: models BPE (byte-level or with byte fallback) and Unigram; normalizers NFC, Prepend,
// Replace, Strip, Precompiled; pre-tokenizers ByteLevel, Split, Digits, Punctuation, Metaspace,
// Whitespace, WhitespaceSplit; decoders ByteLevel, Metaspace and the SentencePiece sequence;
// post-processors TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel.
Result<VocabSpec> ParseTokenizerJson(std::string_view json);

}  // namespace reprise
