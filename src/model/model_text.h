// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"
#include "text/vocab/tokenizer_config.h"
#include "weights/checkpoint.h"

namespace reprise {

// What a checkpoint says about text.
struct ModelText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<ChatTemplateSource> chat_templates;  // the default one first; may be empty
};

// From GGUF metadata, or from the files beside the weights of a Hugging Face folder. Fails with
// kNotFound if the checkpoint has no tokenizer.
Result<ModelText> ReadModelText(const Checkpoint& checkpoint);

// A tokenizer on its own: a folder, tokenizer.json, a SentencePiece model, RWKV's vocabulary, or
// that of a GGUF file.
Result<ModelText> ReadTextFile(const std::string& path);

}  // namespace reprise
