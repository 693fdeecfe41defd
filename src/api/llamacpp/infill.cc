// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/infill.h"

#include <fmt/format.h>

#include <string>

namespace reprise::api::llamacpp {
namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr size_t kFilesMax = 1024;

// Prefix, suffix, middle, file: Qwen Coder and Granite, StarCoder, DeepSeek Coder, CodeGemma's and
// Code Llama's; Codestral's, which has the suffix first and no middle.
constexpr const char* kNames[][4] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<file_sep>"},
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>",
     ""},
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", ""},
    {"<PRE>", "<SUF>", "<MID>", ""},
    {"[PREFIX]", "[SUFFIX]", "", ""},
};

Status AppendText(const ServedModel& model, std::string_view text, Account* account,
                  Prompt* prompt) {
  return EncodeText(model, text, {false, false}, Wanted::kWhatFits, account, prompt);
}

void Append(const ServedModel& model, std::string_view text, const char* name, Account* account,
            Fields* fields, Prompt* prompt) {
  const Status encoded = AppendText(model, text, account, prompt);
  if (!encoded.ok()) fields->Fail(name, "cannot be read: " + encoded.message());
}

void ReadFiles(const ServedModel& model, const InfillTokens& tokens, Account* account,
               Fields* fields, Prompt* prompt) {
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
    Append(model, name + "\n" + text, "input_extra", account, fields, prompt);
    if (prompt->tokens_too_many > 0) return;
  }
}

}  // namespace

std::optional<InfillTokens> FindInfillTokens(const Tokenizer& tokenizer) {
  for (const auto& names : kNames) {
    const auto find = [&](const char* name) { return *name == 0 ? -1 : tokenizer.FindToken(name); };
    const InfillTokens found = {find(names[0]), find(names[1]), find(names[2]), find(names[3])};
    const bool middle = found.middle >= 0 || *names[2] == 0;
    if (found.prefix >= 0 && found.suffix >= 0 && middle) return found;
  }
  return std::nullopt;
}

Prompt ReadInfill(const ServedModel& model, const InfillTokens& tokens, Account* account,
                  Fields* fields) {
  std::string prefix;
  std::string suffix;
  std::string middle;
  fields->Read("input_prefix", kTextBytesMax, &prefix);
  fields->Read("input_suffix", kTextBytesMax, &suffix);
  fields->Read("prompt", kTextBytesMax, &middle);
  Prompt prompt;
  ReadFiles(model, tokens, account, fields, &prompt);
  if (prompt.tokens_too_many > 0 || !fields->ok()) return prompt;
  const Status status = AppendInfill(model, tokens, prefix, suffix, account, &prompt);
  if (!status.ok()) fields->Fail("input_prefix", "cannot be read: " + status.message());
  if (prompt.tokens_too_many > 0 || !fields->ok()) return prompt;
  Append(model, middle, "prompt", account, fields, &prompt);
  return prompt;
}

Status AppendInfill(const ServedModel& model, const InfillTokens& tokens, std::string_view prefix,
                    std::string_view suffix, Account* account, Prompt* prompt) {
  const auto add = [&](int32_t token, std::string_view text) {
    if (prompt->tokens_too_many > 0) return OkStatus();
    if (token >= 0) prompt->ids.push_back(token);
    return AppendText(model, text, account, prompt);
  };
  if (tokens.middle < 0) {
    const int32_t bos = model.tokenizer->bos_id();
    if (prompt->ids.empty() && bos >= 0) prompt->ids.push_back(bos);
    REPRISE_TRY(add(tokens.suffix, suffix));
    return add(tokens.prefix, prefix);
  }
  REPRISE_TRY(add(tokens.prefix, prefix));
  REPRISE_TRY(add(tokens.suffix, suffix));
  return add(tokens.middle, "");
}

void StopAtInfillTokens(const InfillTokens& tokens, ReplyOptions* options) {
  for (const int32_t token : {tokens.prefix, tokens.suffix, tokens.middle, tokens.file}) {
    if (token >= 0) options->stop_tokens.push_back(token);
  }
}

bool ReadSuffix(const ServedModel& model, std::string_view prefix, Account* account, Fields* fields,
                ReplyOptions* options, Prompt* prompt) {
  std::string suffix;
  fields->Read("suffix", kTextBytesMax, &suffix);
  if (suffix.empty() || !fields->ok()) return false;
  const auto tokens = FindInfillTokens(*model.tokenizer);
  if (!tokens) {
    fields->Fail("suffix", "is not supported by this model: it has no tokens to fill in with",
                 "unsupported_value");
    return false;
  }
  const Status status = AppendInfill(model, *tokens, prefix, suffix, account, prompt);
  if (!status.ok()) fields->Fail("suffix", "cannot be read: " + status.message());
  StopAtInfillTokens(*tokens, options);
  return true;
}

}  // namespace reprise::api::llamacpp
