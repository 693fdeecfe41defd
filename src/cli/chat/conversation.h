// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/status.h"
#include "engine/request.h"
#include "model/model_text.h"
#include "model/vision/seen_picture.h"
#include "text/chat_prompt.h"
#include "text/template/chat_template.h"

namespace reprise::cli {

// The names and texts of special tokens that templates ask for.
std::vector<std::pair<std::string, std::string>> SpecialTokens(const Tokenizer& tokenizer);

// A chat template that writes all that stands for a picture, not only what marks its place.
std::string WithPicturePlaces(std::string source, const Tokenizer& tokenizer);

// How the model sees pictures.
struct Eyes {
  TokenId token = -1;  // that stands for one in prompts; -1: it sees none
  std::function<Result<std::shared_ptr<const SeenPicture>>(std::string_view file)> see;
};

struct ShownPicture {
  std::string file;  // its bytes
  std::shared_ptr<const SeenPicture> seen;
};

// What the user says: pictures, and then a text.
struct Question {
  std::string text;
  std::vector<ShownPicture> pictures;
};

// What was said so far, and the prompt that it makes: by the model's chat template, or plain text
// that goes on where there is none.
class Conversation {
 public:
  // Fails if the chat template cannot be used. `text` must outlive this.
  static Result<Conversation> Create(const ModelText* text, std::string system, bool plain,
                                     Eyes eyes);

  bool is_chat() const { return template_.has_value(); }

  // A picture for a question. Fails with a sentence if the model sees none, or not this one.
  Result<ShownPicture> See(std::string file) const;

  // The prompt after one more message of the user: ids, pictures and boundaries.
  Result<GenerateRequest> Ask(Question question);
  // The model's reply to the last Ask; without it (empty, cancelled early) the question stands
  // alone.
  void Reply(const std::string& text);
  // What the next prompt will begin with, whatever is asked: the history as the template renders it
  // then. Empty where that cannot be told.
  Result<GenerateRequest> NextTurn() const;
  void Clear();

  // Takes back the last question, with its reply. None if there is no question.
  std::optional<Question> Unask();

  const std::string& system() const { return system_; }
  // The messages so far stay.
  void SetSystem(std::string system);

  // The messages as the body of a request to /v1/chat/completions: for files, and `reprise diff`.
  // REQUIRES: is_chat().
  std::string ToJson() const;
  // Takes the messages of such a body in the place of what was said. Fails, and changes nothing, if
  // they are no conversation by system, user and assistant, or a picture cannot be seen.
  Status FromJson(std::string_view json);

 private:
  struct Message {
    std::string role;
    std::string content;
    std::vector<ShownPicture> pictures = {};  // in front of it
  };

  Conversation(const ModelText* text, std::string system, Eyes eyes)
      : text_(text), system_(std::move(system)), eyes_(std::move(eyes)) {}
  static void WriteMessages(const std::vector<Message>& messages, bool with_files,
                            JsonWriter* json);
  Result<Message> ReadMessage(const JsonValue& item) const;
  Result<RenderedChat> Render(const std::vector<Message>& messages, bool opens_reply) const;
  // The prompt of these messages, as they were rendered.
  Result<GenerateRequest> Encode(const RenderedChat& chat,
                                 const std::vector<Message>& messages) const;

  const ModelText* text_;
  std::string system_;
  Eyes eyes_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> encoder_;  // of that template
  std::vector<Message> messages_;
  std::string plain_;    // everything so far, where there is no template
  std::string asked_;    // there: the last question,
  size_t asked_at_ = 0;  // and where in plain_ it begins
};

}  // namespace reprise::cli
