// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "api/served_model.h"
#include "base/status.h"
#include "model/model_text.h"
#include "text/chat_prompt.h"
#include "text/template/chat_template.h"
#include "weights/checkpoint.h"

namespace reprise::cli {

// The text side of a model as the APIs see it: tokenizer, chat template, and what the template is
// able to do. The server and `reprise diff` make prompts with the same one.
//
// Thread safety: immutable after Read.
class ServedText {
 public:
  ServedText() = default;
  ServedText(const ServedText&) = delete;
  ServedText& operator=(const ServedText&) = delete;

  // From the files of the model, or from `tokenizer_path` where that is not empty. A template that
  // cannot be used is logged: the model then completes plain text only.
  Status Read(const Checkpoint& checkpoint, const std::string& tokenizer_path);

  // Sets what is text in `served`, with pointers into this.
  void Describe(api::ServedModel* served) const;

  const Tokenizer& tokenizer() const { return *text_->tokenizer; }

 private:
  std::optional<ModelText> text_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> encoder_;
};

}  // namespace reprise::cli
