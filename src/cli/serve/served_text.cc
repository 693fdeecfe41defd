// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/served_text.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cli/chat/conversation.h"

namespace reprise::cli {
namespace {

// What Transformers' processors put around a picture's tokens in the place that a template leaves
// for it: the template writes it here, so that it becomes tokens together with the text beside it.
struct PicturePlace {
  std::string_view written;  // by the template, as a literal
  std::string_view whole;
  std::string_view own;  // a token of it; templates that write it themselves are left alone
};
constexpr PicturePlace kPicturePlaces[] = {
    {"'<start_of_image>'", R"('\n\n<start_of_image><image_soft_token><end_of_image>\n\n')",
     "<image_soft_token>"},
    {"'<|image|>'", "'<|image><|image|><image|>'", "<image|>"}};

std::string WithPictures(std::string source, const Tokenizer& tokenizer) {
  for (const PicturePlace& place : kPicturePlaces) {
    if (tokenizer.FindToken(place.own) < 0 || source.find(place.own) != source.npos) continue;
    for (size_t at = 0; (at = source.find(place.written, at)) != source.npos;) {
      source.replace(at, place.written.size(), place.whole);
      at += place.whole.size();
    }
  }
  return source;
}

}  // namespace

Status ServedText::Read(const Checkpoint& checkpoint, const std::string& tokenizer_path) {
  auto text = tokenizer_path.empty() ? ReadModelText(checkpoint) : ReadTextFile(tokenizer_path);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound && tokenizer_path.empty()) {
    return text.status().Annotate("give one with --tokenizer");
  }
  if (!text.ok()) return text.status();
  text_.emplace(std::move(*text));
  encoder_.emplace(text_->tokenizer.get());
  if (text_->chat_templates.empty()) return OkStatus();
  auto parsed =
      ChatTemplate::Parse(WithPictures(text_->chat_templates.front().source, *text_->tokenizer));
  if (parsed.ok()) {
    template_.emplace(std::move(*parsed));
  } else {
    Log(LogLevel::kWarning,
        "the model's chat template cannot be used, chat is off: " + parsed.status().message());
  }
  return OkStatus();
}

void ServedText::Describe(api::ServedModel* served) const {
  const Tokenizer* tokenizer = text_->tokenizer.get();
  served->tokenizer = tokenizer;
  served->special_tokens = SpecialTokens(*tokenizer);
  served->chat_template = template_ ? &*template_ : nullptr;
  if (!template_) return;
  served->template_source = text_->chat_templates.front().source;
  served->output = OutputFormat::Detect(served->template_source, tokenizer);
  served->call_shape = FindCallShape(*template_);
  if (served->call_shape.tools_as_text) served->output.AddGenericCalls(*tokenizer);
  served->system_shape = FindSystemShape(*template_);
  served->thinking = ThinkingSwitches::Detect(served->template_source);
  served->chat_encoder = &*encoder_;
}

}  // namespace reprise::cli
