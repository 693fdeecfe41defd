// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/infill.h"

#include <fmt/format.h>

#include <string>

namespace reprise::api::llamacpp {
namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr size_t kFilesMax = 1024;

// Prefix, suffix, middle, file: Qwen Coder and Granite, StarCoder, DeepSeek Coder, CodeGemma's and
// Code Llama's.
constexpr const char* kNames[][4] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<file_sep>"},
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>",
     ""},
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", ""},
    {"<PRE>", "<SUF>", "<MID>", ""},
};

void Append(const Tokenizer& tokenizer, std::string_view text, const char* name, Fields* fields,
            Prompt* prompt) {
  const Status encoded = tokenizer.Encode(text, {false, false}, &prompt->ids);
  if (!encoded.ok()) fields->Fail(name, encoded.message());
}

void ReadFiles(const Tokenizer& tokenizer, const InfillTokens& tokens, Fields* fields,
               Prompt* prompt) {
  const JsonValue* files = fields->Array("input_extra", kFilesMax);
  if (files == nullptr || files->items().empty()) return;
  if (tokens.file < 0) {
    return fields->Fail("input_extra", "is not supported: this model reads one file only");
  }
  for (size_t i = 0; i < files->items().size() && fields->ok(); ++i) {
    const JsonValue& file = files->items()[i];
    if (!file.is_object()) {
      return fields->Fail(fmt::format("input_extra[{}]", i), "must be an object");
    }
    Fields part(file, fmt::format("input_extra[{}].", i));
    std::string name;
    std::string text;
    part.Read("filename", 4096, &name);
    part.Read("text", kTextBytesMax, &text);
    fields->Take(part);
    prompt->ids.push_back(tokens.file);
    Append(tokenizer, name + "\n" + text, "input_extra", fields, prompt);
  }
}

}  // namespace

std::optional<InfillTokens> FindInfillTokens(const Tokenizer& tokenizer) {
  for (const auto& names : kNames) {
    const InfillTokens found = {tokenizer.FindToken(names[0]), tokenizer.FindToken(names[1]),
                                tokenizer.FindToken(names[2]),
                                *names[3] == 0 ? -1 : tokenizer.FindToken(names[3])};
    if (found.prefix >= 0 && found.suffix >= 0 && found.middle >= 0) return found;
  }
  return std::nullopt;
}

Prompt ReadInfill(const Tokenizer& tokenizer, const InfillTokens& tokens, Fields* fields) {
  std::string prefix;
  std::string suffix;
  std::string middle;
  fields->Read("input_prefix", kTextBytesMax, &prefix);
  fields->Read("input_suffix", kTextBytesMax, &suffix);
  fields->Read("prompt", kTextBytesMax, &middle);
  Prompt prompt;
  ReadFiles(tokenizer, tokens, fields, &prompt);
  prompt.ids.push_back(tokens.prefix);
  Append(tokenizer, prefix, "input_prefix", fields, &prompt);
  prompt.ids.push_back(tokens.suffix);
  Append(tokenizer, suffix, "input_suffix", fields, &prompt);
  prompt.ids.push_back(tokens.middle);
  Append(tokenizer, middle, "prompt", fields, &prompt);
  return prompt;
}

}  // namespace reprise::api::llamacpp
