// SPDX-License-Identifier: Apache-2.0
// reprise diff A.json B.json: where the prompts of two requests part, and what that costs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/prompt.h"
#include "api/fields.h"
#include "api/openai/params.h"
#include "api/service.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "model/model_text.h"
#include "weights/checkpoint.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string a, b;
  std::string model;
  std::string tokenizer;
};

// What the server has of a model to make prompts with; no weights.
class TextOfModel {
 public:
  Status Load(const Options& options) {
    std::string path = options.model;
    if (path.empty()) {
      REPRISE_ASSIGN(path, FindBundledModel());
    }
    if (options.tokenizer.empty()) {
      REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
      REPRISE_ASSIGN(text_, ReadModelText(checkpoint));
    } else {
      REPRISE_ASSIGN(text_, ReadTextFile(options.tokenizer));
    }
    served_.tokenizer = text_.tokenizer.get();
    served_.special_tokens = SpecialTokens(*text_.tokenizer);
    if (text_.chat_templates.empty()) return OkStatus();
    served_.template_source = text_.chat_templates.front().source;
    REPRISE_ASSIGN(template_, ChatTemplate::Parse(served_.template_source));
    served_.chat_template = &*template_;
    served_.output = OutputFormat::Detect(served_.template_source, served_.tokenizer);
    served_.call_shape = FindCallShape(*template_);
    served_.thinking = ThinkingSwitches::Detect(served_.template_source);
    encoder_.emplace(served_.tokenizer, served_.ControlText());
    served_.chat_encoder = &*encoder_;
    return OkStatus();
  }

  // The prompt of a request body, as the server makes it: "messages" with "tools", or "prompt".
  Result<api::Prompt> PromptOf(const std::string& path) const {
    REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(path));
    const auto bytes = file.bytes();
    auto document =
        JsonDocument::Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (!document.ok()) return document.status().Annotate(path);
    if (!document->root().is_object()) return InvalidArgument(path + " is not a JSON object");
    auto prompt = Render(document->root());
    if (!prompt.ok()) return prompt.status().Annotate(path);
    return prompt;
  }

  std::string Decode(std::span<const TokenId> ids) const {
    return served_.tokenizer->Decode(ids, true);
  }

 private:
  Result<api::Prompt> Render(const JsonValue& body) const {
    const JsonValue* text = body.Find("prompt");
    if (text != nullptr && text->is_string()) {
      api::Prompt prompt;
      REPRISE_TRY(served_.tokenizer->Encode(text->as_string(), {true, false}, &prompt.ids));
      return prompt;
    }
    if (body.Find("messages") == nullptr) {
      return InvalidArgument("has neither \"messages\" nor a \"prompt\" that is a text");
    }
    const api::ServiceOptions limits;
    api::Fields fields(body);
    api::ChatJob job;
    api::openai::ReadMessages(limits, &fields, &job);
    api::openai::ReadTools(limits, &fields, &job);
    api::openai::ReadThinking(served_, &fields, &job);
    if (!fields.ok()) return InvalidArgument(fields.error()->message);
    return api::RenderChat(served_, job);
  }

  ModelText text_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> encoder_;
  api::ServedModel served_;
};

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

// The bytes of whole characters at most.
size_t CharacterStart(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (text[at] & 0xc0) == 0x80) --at;
  return at;
}

std::string Before(std::string_view text, size_t at) {
  constexpr size_t kShown = 60;
  const size_t from = CharacterStart(text, at - std::min(at, kShown));
  return (from > 0 ? "..." : "") + Quoted(text.substr(from, at - from));
}

std::string Behind(std::string_view text, size_t at) {
  constexpr size_t kShown = 60;
  const size_t upto = CharacterStart(text, std::min(text.size(), at + kShown));
  return Quoted(text.substr(at, upto - at)) + (upto < text.size() ? "..." : "");
}

// Which message the token belongs to, counted from 1.
size_t MessageAt(const api::Prompt& prompt, size_t token) {
  size_t message = 1;
  for (const Boundary& boundary : prompt.boundaries) {
    if (static_cast<size_t>(boundary.position) <= token) ++message;
  }
  return message;
}

void Print(const TextOfModel& model, const api::Prompt& a, const api::Prompt& b) {
  const size_t least = std::min(a.ids.size(), b.ids.size());
  const auto same = static_cast<size_t>(
      std::mismatch(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end()).first - a.ids.begin());
  std::printf("A has %zu tokens, B %zu; the first %zu are the same\n", a.ids.size(), b.ids.size(),
              same);
  if (same == b.ids.size() && same == a.ids.size()) {
    std::printf("the prompts are equal: after A, B computes 1 token\n");
    return;
  }
  const std::string text_a = model.Decode(a.ids), text_b = model.Decode(b.ids);
  const size_t at = CharacterStart(text_a, CommonPrefix(text_a, text_b));
  std::printf("they part at byte %zu, in message %zu\n", at, MessageAt(b, same));
  std::printf("  both  %s\n", Before(text_b, at).c_str());
  std::printf("  A     %s\n", Behind(text_a, at).c_str());
  std::printf("  B     %s\n", Behind(text_b, at).c_str());
  size_t again = 0;  // the same tokens at the end of both
  while (again < least - same &&
         a.ids[a.ids.size() - 1 - again] == b.ids[b.ids.size() - 1 - again]) {
    ++again;
  }
  const size_t computed = std::max<size_t>(1, b.ids.size() - same);
  std::printf("after A, B computes %zu of its %zu tokens (%.1f %%)\n", computed, b.ids.size(),
              100. * double(computed) / double(b.ids.size()));
  if (again == 0) return;
  std::printf(
      "%zu of them are the same in A, behind what differs: with the difference last, B would "
      "compute %zu\n",
      again, computed - again);
}

Status Run(const Options& options) {
  TextOfModel model;
  REPRISE_TRY(model.Load(options));
  REPRISE_ASSIGN(const api::Prompt a, model.PromptOf(options.a));
  REPRISE_ASSIGN(const api::Prompt b, model.PromptOf(options.b));
  Print(model, a, b);
  return OkStatus();
}

}  // namespace

void DefineDiff(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("A", &options->a, "JSON file: the body of the first request", {.required = true});
  flags->Add("B", &options->b, "JSON file: the body of the second request", {.required = true});
  flags->Add("-m,--model", &options->model,
             "GGUF file or Hugging Face folder whose template and tokenizer are used (default: the "
             "bundled model)");
  flags->Add("--tokenizer", &options->tokenizer, "tokenizer instead of the model's own");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
