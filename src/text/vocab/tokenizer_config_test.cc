// SPDX-License-Identifier: Apache-2.0
// Proves: tokenizer_config.json and generation_config.json say what begins and ends a text, how
// added tokens match and what the chat templates are; folders are read whole; broken files are
// refused.
#include "text/vocab/tokenizer_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "text/test_assets.h"
#include "text/tokenizer.h"
#include "text/vocab/file.h"

namespace reprise {
namespace {

using Ids = std::vector<int32_t>;

VocabSpec SmallVocab() {
  VocabSpec spec;
  for (const char* token : {"<s>", "</s>", "a", "<end>"}) spec.tokens.Add(token);
  spec.kinds.assign(4, TokenKind::kNormal);
  spec.added = {{.id = 0, .text = "<s>", .special = true}, {.id = 1, .text = "</s>"}};
  return spec;
}

TEST(TokenizerConfigTest, NamesTokens) {
  VocabSpec spec = SmallVocab();
  std::vector<ChatTemplateSource> templates;
  const Status status = ApplyTokenizerConfig(
      R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":"a","unk_token":null,)"
      R"("add_bos_token":true,"add_eos_token":true,"chat_template":"{{ x }}"})",
      &spec, &templates);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(spec.bos_id, 0);
  EXPECT_EQ(spec.pad_id, 2);
  EXPECT_EQ(spec.eos_ids, Ids{1});
  EXPECT_EQ(spec.prefix_ids, Ids{0});
  EXPECT_EQ(spec.suffix_ids, Ids{1});
  ASSERT_EQ(templates.size(), 1u);
  EXPECT_EQ(templates[0].name, "default");
  EXPECT_EQ(templates[0].source, "{{ x }}");
}

TEST(TokenizerConfigTest, TakesTokensOutOfTheTemplate) {
  VocabSpec spec = SmallVocab();
  spec.prefix_ids = {0};
  std::vector<ChatTemplateSource> templates;
  ASSERT_TRUE(
      ApplyTokenizerConfig(R"({"bos_token":"<s>","add_bos_token":false})", &spec, &templates).ok());
  EXPECT_TRUE(spec.prefix_ids.empty());
}

TEST(TokenizerConfigTest, AddedTokensOfTheConfigCount) {
  VocabSpec spec = SmallVocab();
  std::vector<ChatTemplateSource> templates;
  const Status status = ApplyTokenizerConfig(
      R"({"added_tokens_decoder":{"1":{"content":"</s>","special":true,"rstrip":true},)"
      R"("6":{"content":"<new>","special":false}}})",
      &spec, &templates);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(spec.tokens.size(), 7u);
  EXPECT_EQ(spec.tokens[6], "<new>");
  EXPECT_EQ(spec.tokens[2], "a");
  EXPECT_EQ(spec.kinds[1], TokenKind::kControl);
  EXPECT_EQ(spec.kinds[5], TokenKind::kUnused);
  const auto tokenizer = Tokenizer::Make(std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  Ids ids;
  ASSERT_TRUE((*tokenizer)->Encode("</s>  <new>", {false, true}, &ids).ok());
  EXPECT_EQ(ids, (Ids{1, 6}));
}

TEST(TokenizerConfigTest, TemplatesByName) {
  VocabSpec spec = SmallVocab();
  std::vector<ChatTemplateSource> templates;
  ASSERT_TRUE(ApplyTokenizerConfig(R"({"chat_template":[{"name":"tool_use","template":"T"},)"
                                   R"({"name":"default","template":"D"}]})",
                                   &spec, &templates)
                  .ok());
  ASSERT_EQ(templates.size(), 2u);
  EXPECT_EQ(templates[0].source, "D");
  EXPECT_EQ(templates[1].name, "tool_use");
}

TEST(TokenizerConfigTest, RefusesBrokenFiles) {
  for (const char* json : {"", "{", R"({"added_tokens_decoder":[]})",
                           R"({"added_tokens_decoder":{"x":{"content":"a"}}})",
                           R"({"added_tokens_decoder":{"-1":{"content":"a"}}})",
                           R"({"added_tokens_decoder":{"2097152":{"content":"a"}}})",
                           R"({"added_tokens_decoder":{"99999999999999999999":{"content":"a"}}})",
                           R"({"added_tokens_decoder":{"2":{"content":"other"}}})",
                           R"({"added_tokens_decoder":{"2":{}}})", R"({"chat_template":7})",
                           R"({"chat_template":[{"name":"x"}]})"}) {
    VocabSpec spec = SmallVocab();
    std::vector<ChatTemplateSource> templates;
    EXPECT_FALSE(ApplyTokenizerConfig(json, &spec, &templates).ok()) << json;
  }
}

TEST(GenerationConfigTest, NumbersOrLists) {
  VocabSpec spec = SmallVocab();
  EXPECT_TRUE(ApplyGenerationConfig(R"({"eos_token_id":3})", &spec).ok());
  EXPECT_TRUE(ApplyGenerationConfig(R"({"eos_token_id":[1,3]})", &spec).ok());
  EXPECT_TRUE(ApplyGenerationConfig(R"({"eos_token_id":null})", &spec).ok());
  EXPECT_EQ(spec.eos_ids, (Ids{3, 1}));
  for (const char* json : {R"({"eos_token_id":4})", R"({"eos_token_id":-1})",
                           R"({"eos_token_id":4294967297})", R"({"eos_token_id":"1"})", "x"}) {
    EXPECT_FALSE(ApplyGenerationConfig(json, &spec).ok()) << json;
  }
}

TEST(TokenizerFolderTest, ReadsWhatIsThere) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("reprise_tokenizer_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  EXPECT_EQ(ReadTokenizerFolder(folder.string()).status().code(), StatusCode::kNotFound);
  std::filesystem::copy_file(std::string(kTokenizerData) + "qwen2.json", folder / "tokenizer.json");
  write("tokenizer_config.json", R"({"eos_token":"<|im_end|>","chat_template":"old"})");
  write("generation_config.json", R"({"eos_token_id":[3]})");
  write("chat_template.jinja", "new");
  const auto read = ReadTokenizerFolder(folder.string());
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->chat_templates.size(), 1u);
  EXPECT_EQ(read->chat_templates[0].source, "new");
  ASSERT_EQ(read->vocab.eos_ids.size(), 2u);
  EXPECT_EQ(read->vocab.tokens[static_cast<size_t>(read->vocab.eos_ids[0])], "<|im_end|>");
  write("generation_config.json", "{");
  EXPECT_EQ(ReadTokenizerFolder(folder.string()).status().code(), StatusCode::kDataLoss);
  std::filesystem::remove_all(folder);
}

TEST(TokenizerFolderTest, ReadsPublishedFolders) {
  for (const char* name :
       {"qwen2.5", "qwen3", "llama3.2", "deepseek-v3", "gemma", "mistral-nemo"}) {
    const std::string path = SharedAsset(std::string("tokenizers/") + name);
    if (path.empty()) GTEST_SKIP() << "shared assets are not here";
    auto folder = ReadTokenizerFolder(path);
    ASSERT_TRUE(folder.ok()) << name << ": " << folder.status().message();
    EXPECT_FALSE(folder->vocab.eos_ids.empty()) << name;
    const auto tokenizer = Tokenizer::Make(std::move(folder->vocab));
    EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().message();
  }
}

}  // namespace
}  // namespace reprise
