// SPDX-License-Identifier: Apache-2.0
#include "text/vocab/file.h"

#include <filesystem>
#include <utility>

#include "base/mapped_file.h"
#include "text/vocab/json/tokenizer_json.h"
#include "text/vocab/rwkv.h"
#include "text/vocab/sentencepiece.h"

namespace reprise {
namespace {

constexpr size_t kVocabBytesMax = size_t{256} << 20;
constexpr size_t kConfigBytesMax = size_t{16} << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// The first of them that a folder has; null if it has none.
const char* FindVocab(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"}) {
    if (Exists(folder + "/" + name)) return name;
  }
  return nullptr;
}

Result<VocabSpec> Parse(const std::string& path, std::string_view text) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.find(".model") != name.npos) return ParseSentencePieceModel(text);
  if (name.ends_with(".txt")) return ParseRwkvVocab(text);
  return ParseTokenizerJson(text);
}

}  // namespace

bool HasVocab(const std::string& folder) { return FindVocab(folder) != nullptr; }

Result<TokenizerFolder> ReadTokenizerFolder(const std::string& folder) {
  const std::string base = folder + "/";
  const char* vocab = FindVocab(folder);
  if (vocab == nullptr) {
    return NotFound("there is no tokenizer.json, tekken.json or tokenizer.model in " + folder);
  }
  TokenizerFolder result;
  REPRISE_ASSIGN(result.vocab, ReadVocabFile(base + vocab));
  if (Exists(base + "tokenizer_config.json")) {
    REPRISE_ASSIGN(const std::string text,
                   ReadFile(base + "tokenizer_config.json", kConfigBytesMax));
    REPRISE_TRY(ApplyTokenizerConfig(text, &result.vocab, &result.chat_templates));
  }
  if (Exists(base + "generation_config.json")) {
    REPRISE_ASSIGN(const std::string text,
                   ReadFile(base + "generation_config.json", kConfigBytesMax));
    REPRISE_TRY(ApplyGenerationConfig(text, &result.vocab));
  }
  // Newer folders keep the template in a file of its own, which then counts.
  if (Exists(base + "chat_template.jinja")) {
    REPRISE_ASSIGN(std::string text, ReadFile(base + "chat_template.jinja", kConfigBytesMax));
    std::erase_if(result.chat_templates, [](const auto& t) { return t.name == "default"; });
    result.chat_templates.insert(result.chat_templates.begin(), {"default", std::move(text)});
  }
  return result;
}

Result<VocabSpec> ReadVocabFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    REPRISE_ASSIGN(TokenizerFolder folder, ReadTokenizerFolder(path));
    return std::move(folder.vocab);
  }
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kVocabBytesMax));
  return Parse(path, text);
}

}  // namespace reprise
