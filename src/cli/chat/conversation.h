// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "model/model_text.h"
#include "text/chat_prompt.h"
#include "text/template/chat_template.h"

namespace reprise::cli {

// The names and texts of special tokens that templates ask for.
std::vector<std::pair<std::string, std::string>> SpecialTokens(const Tokenizer& tokenizer);

// What was said so far, and the prompt that it makes: by the model's chat template, or plain text
// that goes on where there is none.
class Conversation {
 public:
  // Fails if the chat template cannot be used. `text` must outlive this.
  static Result<Conversation> Create(const ModelText* text, std::string system, bool plain);

  bool is_chat() const { return template_.has_value(); }

  // The prompt after one more message of the user: ids and boundaries.
  Result<GenerateRequest> Ask(const std::string& message);
  // The model's reply to the last Ask; without it (empty, cancelled early) the question stands
  // alone.
  void Reply(const std::string& text);
  // What the next prompt will begin with, whatever is asked: the history as the template renders it
  // then. Empty where that cannot be told.
  Result<std::vector<TokenId>> NextTurn() const;
  void Clear();

  // Takes back the last question, with its reply. None if there is no question.
  std::optional<std::string> Unask();

  const std::string& system() const { return system_; }
  // The messages so far stay.
  void SetSystem(std::string system);

  // The messages as the body of a request to /v1/chat/completions: for files, and `reprise diff`.
  // REQUIRES: is_chat().
  std::string ToJson() const;
  // Takes the messages of such a body in the place of what was said. Fails, and changes nothing, if
  // they are no conversation of texts by system, user and assistant.
  Status FromJson(std::string_view json);

 private:
  Conversation(const ModelText* text, std::string system)
      : text_(text), system_(std::move(system)) {}
  Result<RenderedChat> Render(const std::vector<ChatMessage>& messages, bool opens_reply) const;
  Result<GenerateRequest> RenderChat() const;

  const ModelText* text_;
  std::string system_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> encoder_;  // of that template
  std::vector<ChatMessage> messages_;
  std::string plain_;    // everything so far, where there is no template
  std::string asked_;    // there: the last question,
  size_t asked_at_ = 0;  // and where in plain_ it begins
};

}  // namespace reprise::cli
