// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/template/render_meter.h"
#include "text/text_range.h"

namespace reprise {

// What the renders of one request may use together. The template comes with a model file and the
// conversation from a network client: neither is trusted with the server's time or memory.
struct ChatTemplateLimits {
  uint64_t steps_max = 10'000'000;              // nodes evaluated, items and text looked at
  size_t memory_bytes_max = size_t{256} << 20;  // allocated in all, freed or not
  size_t output_bytes_max = size_t{8} << 20;
  std::chrono::milliseconds time_max{1000};
  uint64_t boundary_steps_max = 1'000'000;  // of them, for finding boundaries
};

// The local time now, for ChatInput::now.
std::tm LocalTime();

// What a template is rendered with. The JSON must outlive the call. Variables have the names and
// values that Hugging Face's apply_chat_template gives them: what is absent here is None there.
struct ChatInput {
  const JsonValue* messages = nullptr;   // array of objects; required
  const JsonValue* tools = nullptr;      // array
  const JsonValue* documents = nullptr;  // array
  const JsonValue* variables = nullptr;  // object: chat_template_kwargs; may not name the others
  // bos_token, eos_token...: the model's own, as much as the template's text.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // Contents of messages in which not all is a client's: the model itself wrote the markers around
  // the calls that it made.
  struct MixedContent {
    size_t message = 0;
    std::vector<TextRange> data;  // ascending; the rest may be control tokens
  };
  std::vector<MixedContent> mixed_contents;  // ascending
  bool add_generation_prompt = true;
  std::tm now = LocalTime();  // what strftime_now prints

  // After how many of the last messages a boundary is looked for, besides the one after the system
  // messages and tools. 0: no boundaries at all.
  size_t boundary_messages_max = 4;

  // What this render and others of the same request draw on (ChatTemplate::MakeMeter). Null: it is
  // the only one.
  RenderMeter* meter = nullptr;
};

// A position in the rendered text that does not depend on what follows the first `message_count`
// messages: any other conversation that begins with the same messages (and the same tools and
// variables) renders to the same bytes up to `byte_offset`. It is where a snapshot can be reused.
struct MessageBoundary {
  size_t message_count = 0;
  size_t byte_offset = 0;
};

struct RenderedChat {
  std::string text;
  // Which of it is data: what came from the messages, tools and variables. The rest is the
  // template's own (roles are, too: a bare word is a choice, not a text), and it alone may name
  // control tokens.
  std::vector<TextRange> data;
  // In ascending order of both members. The first is that of the leading system messages (with
  // message_count 0 if there are none); the others follow for the last messages of the
  // conversation, as many as were asked for and boundary_steps_max allowed.
  std::vector<MessageBoundary> boundaries;
};

// A model's chat template: a program in Jinja, as published with the model, that turns messages and
// tool definitions into the text of a prompt. Renders byte for byte what Python's jinja2 renders in
// the environment of Hugging Face Transformers (see README.md for what is left out).
//
// Thread safety: immutable after Parse; Render may be called from several threads at once.
// Costs: Render is linear in what the template does, some 50 ns a step, which is 6 us a message for
// the larger templates; each boundary costs up to seven more renders of the messages before it, as
// long as boundary_steps_max allows.
class ChatTemplate {
 public:
  // Fails with the line of what is wrong: kInvalidArgument, or kUnimplemented for a construct that
  // exists in Jinja but not here.
  static Result<ChatTemplate> Parse(std::string_view source,
                                    const ChatTemplateLimits& limits = ChatTemplateLimits());

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Fails with kInvalidArgument if the template refuses the conversation (raise_exception) or
  // cannot cope with its shape, kUnimplemented if it reaches a filter that does not exist,
  // kResourceExhausted at a limit, kCancelled if the meter says that nobody waits.
  Result<RenderedChat> Render(const ChatInput& input) const;

  // For the renders of one request: from now on they have the time and the steps of the limits.
  RenderMeter MakeMeter(std::function<bool()> abandoned = nullptr) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace reprise
