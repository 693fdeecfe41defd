// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// Reads the vocabulary of a Hugging Face folder (tokenizer.json, and beside it, where they exist,
// tokenizer_config.json and generation_config.json), of a single tokenizer.json, or of RWKV's
// rwkv_vocab_v20230424.txt.
Result<VocabSpec> ReadVocabFile(const std::string& path);

}  // namespace reprise
