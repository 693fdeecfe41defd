// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// A chat template as a file has it: Jinja source. Most models have one, named "default"; some have
// others for tools or retrieval.
struct ChatTemplateSource {
  std::string name;
  std::string source;
};

// Applies a Hugging Face tokenizer_config.json to what tokenizer.json said: which tokens begin, end
// and pad a text, whether BOS and EOS are added, how added tokens match. Appends its chat templates
// to `templates`, the default one first. Fails with kDataLoss if the file is broken.
Status ApplyTokenizerConfig(std::string_view json, VocabSpec* spec,
                            std::vector<ChatTemplateSource>* templates);

// Applies the "eos_token_id" of a generation_config.json, a number or a list.
Status ApplyGenerationConfig(std::string_view json, VocabSpec* spec);

}  // namespace reprise
