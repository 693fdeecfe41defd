// SPDX-License-Identifier: Apache-2.0
// Proves: a vocabulary gives the same ids from GGUF metadata as from its own file; the ids of
// llama.cpp's vocabularies are those of its test vectors, where they are there; broken metadata is
// refused with a sentence.
#include "text/vocab/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/utf8.h"
#include "text/test_assets.h"
#include "text/tokenizer.h"
#include "text/vocab/file.h"

namespace reprise {
namespace {

using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  EXPECT_TRUE(tokenizer.Encode(text, {.add_special = false}, &ids).ok());
  return ids;
}

std::unique_ptr<Tokenizer> Make(Result<VocabSpec> spec) {
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::Make(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

// What a converter would write for the vocabulary of a fixture.
GgufVocab Convert(const std::string& file, const char* model, const char* pre) {
  auto spec = ReadVocabFile(kTokenizerData + file);
  CHECK(spec.ok());
  GgufVocab gguf;
  gguf.model = model;
  gguf.pre = pre;
  gguf.tokens = std::move(spec->tokens);
  for (size_t i = 0; i + 1 < spec->merges.size(); i += 2) {
    gguf.merges.Add(std::string(spec->merges[i]) + " " + std::string(spec->merges[i + 1]));
  }
  for (const double score : spec->scores) gguf.scores.push_back(static_cast<float>(score));
  for (const TokenKind kind : spec->kinds) gguf.types.push_back(static_cast<int32_t>(kind));
  return gguf;
}

struct Case {
  const char* file;
  const char* model;
  const char* pre;
};

class GgufFixtureTest : public testing::TestWithParam<Case> {};

TEST_P(GgufFixtureTest, EqualsTheOtherFile) {
  const Case& c = GetParam();
  const auto ours = Make(VocabFromGguf(Convert(c.file, c.model, c.pre)));
  const auto other = Make(ReadVocabFile(kTokenizerData + std::string(c.file)));
  ASSERT_TRUE(ours != nullptr && other != nullptr);
  const std::string name = c.file;
  const JsonDocument vectors =
      ReadJson(kTokenizerData + name.substr(0, name.find('.')) + ".vectors.json");
  for (const JsonValue& vector : vectors.root().items()) {
    const std::string text = VectorText(vector);
    // GGUF does not know the flags of added tokens.
    if (text.find("[l]") != text.npos || text.find("can't") != text.npos) continue;
    // SentencePiece replaces what is not UTF-8. From GGUF files, as in llama.cpp, the bytes stay.
    if (std::string_view(c.model) == "llama" && !IsValidUtf8(text)) continue;
    EXPECT_EQ(Encode(*ours, text), Encode(*other, text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, GgufFixtureTest,
    testing::Values(Case{"gpt2.json", "gpt2", "gpt-2"}, Case{"qwen2.json", "gpt2", "qwen2"},
                    Case{"qwen35.json", "gpt2", "qwen35"},
                    Case{"deepseek3.json", "gpt2", "deepseek-v3"},
                    Case{"tekken.json", "gpt2", "gpt-4o"}, Case{"o200k.json", "gpt2", "llama4"},
                    Case{"digits.json", "gpt2", "starcoder"}, Case{"falcon.json", "gpt2", "falcon"},
                    Case{"spm_bpe.model", "llama", ""}));

TEST(GgufVocabTest, EveryPreTokenizerRuns) {
  const char* const names[] = {
      "gpt-2",          "olmo",       "llama-bpe",  "dbrx",        "qwen2",
      "megrez",         "qwen35",     "starcoder",  "deepseek-v3", "deepseek-llm",
      "deepseek-coder", "tekken",     "gpt-4o",     "tiny_aya",    "youtu",
      "kimi-k2",        "bailingmoe", "seed-coder", "exaone-moe",  "minicpm5",
      "laguna",         "jais-2",     "superbpe",   "bloom",       "viking",
      "default",        "",           "falcon"};
  for (const char* name : names) {
    auto pre = FindGgufPreTokenizer(name);
    ASSERT_TRUE(pre.ok()) << name << ": " << pre.status().message();
    auto splitter = Splitter::Make(pre->steps);
    ASSERT_TRUE(splitter.ok()) << name << ": " << splitter.status().message();
    Splitter::Scratch scratch;
    const std::string_view text = "Hello's 中文 123456 \xFF\n\n  x";
    ASSERT_TRUE(splitter->Split(text, true, &scratch).ok()) << name;
    std::string joined;
    for (const Piece piece : scratch.pieces) {
      joined += scratch.text.substr(piece.begin, piece.end - piece.begin);
    }
    EXPECT_EQ(joined, text) << name;
  }
  EXPECT_EQ(FindGgufPreTokenizer("unheard-of").status().code(), StatusCode::kUnimplemented);
}

// Reads the tokenizer keys of a well-formed GGUF file; the real reader is not below this module.
class VocabReader {
 public:
  explicit VocabReader(std::string file) : file_(std::move(file)) {
    at_ = 16;
    const uint64_t count = Take<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key(TakeString());
      ReadValue(key, Take<uint32_t>());
    }
  }

  GgufVocab vocab;

 private:
  template <typename T>
  T Take() {
    T value;
    CHECK(at_ + sizeof(T) <= file_.size());
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string_view TakeString() {
    const uint64_t size = Take<uint64_t>();
    CHECK(size <= file_.size() - at_);
    at_ += size;
    return std::string_view(file_).substr(at_ - size, size);
  }

  void ReadValue(const std::string& key, uint32_t type) {
    static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      const std::string_view text = TakeString();
      if (key == "tokenizer.ggml.model") vocab.model = text;
      if (key == "tokenizer.ggml.pre") vocab.pre = text;
    } else if (type == 9) {
      const uint32_t item = Take<uint32_t>();
      const uint64_t count = Take<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) ReadItem(key, item, kSizes[item]);
    } else if (type == 4) {
      const uint32_t id = Take<uint32_t>();
      if (key == "tokenizer.ggml.bos_token_id") vocab.bos_id = id;
      if (key == "tokenizer.ggml.eos_token_id") vocab.eos_id = id;
      if (key == "tokenizer.ggml.unknown_token_id") vocab.unknown_id = id;
    } else {
      at_ += kSizes[type];
    }
  }

  void ReadItem(const std::string& key, uint32_t type, size_t size) {
    if (type == 8) {
      const std::string_view text = TakeString();
      if (key == "tokenizer.ggml.tokens") vocab.tokens.Add(text);
      if (key == "tokenizer.ggml.merges") vocab.merges.Add(text);
    } else if (key == "tokenizer.ggml.scores") {
      vocab.scores.push_back(Take<float>());
    } else if (key == "tokenizer.ggml.token_type") {
      vocab.types.push_back(Take<int32_t>());
    } else {
      at_ += size;
    }
  }

  std::string file_;
  size_t at_ = 0;
};

std::vector<std::string> SplitText(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != text.npos; at = end + separator.size()) {
    parts.push_back(text.substr(at, end - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

Ids ParseIds(const std::string& line) {
  Ids ids;
  for (const std::string& number : SplitText(line, " ")) {
    if (!number.empty()) ids.push_back(std::stoi(number));
  }
  return ids;
}

// Every text of NAME.gguf.inp must give the line of NAME.gguf.out.
void CheckVectors(const Tokenizer& tokenizer, const std::string& name) {
  const std::string base = SharedAsset("tokenizers/llama.cpp/ggml-vocab-" + name + ".gguf.inp");
  ASSERT_FALSE(base.empty());
  const auto texts = SplitText(ReadText(base), "\n__ggml_vocab_test__\n");
  const auto lines = SplitText(ReadText(base.substr(0, base.size() - 3) + "out"), "\n");
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(Encode(tokenizer, texts[i]), ParseIds(lines[i])) << name << ": " << texts[i];
  }
}

class LlamaCppTest : public testing::TestWithParam<const char*> {};

TEST_P(LlamaCppTest, EqualsPublishedVectors) {
  const std::string name = GetParam();
  const std::string path = SharedAsset("tokenizers/llama.cpp/ggml-vocab-" + name + ".gguf");
  if (path.empty()) GTEST_SKIP() << "shared assets are not here";
  const auto tokenizer = Make(VocabFromGguf(VocabReader(ReadText(path)).vocab));
  ASSERT_NE(tokenizer, nullptr);
  CheckVectors(*tokenizer, name);
}

INSTANTIATE_TEST_SUITE_P(Gguf, LlamaCppTest,
                         testing::Values("deepseek-coder", "deepseek-llm", "falcon", "gpt-2",
                                         "llama-spm", "mpt", "phi-3", "refact", "starcoder"));

// Vectors whose vocabulary exists only as tokenizer.json. llama.cpp does no NFC.
TEST(LlamaCppVectorsTest, EqualsPublishedVectorsOfOtherFiles) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama-bpe", "llama3.2"}, {"qwen2", "qwen2.5"}, {"qwen35", "qwen3"}};
  for (const auto& [name, folder] : cases) {
    const std::string path = SharedAsset("tokenizers/" + std::string(folder) + "/tokenizer.json");
    if (path.empty()) GTEST_SKIP() << "shared assets are not here";
    auto spec = ReadVocabFile(path);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    spec->normalize.clear();
    spec->split = FindGgufPreTokenizer(name)->steps;
    const auto tokenizer = Make(std::move(spec));
    ASSERT_NE(tokenizer, nullptr);
    CheckVectors(*tokenizer, name);
  }
}

// Only Falcon's token 11 is one that ends texts; elsewhere it is a comma.
TEST(GgufVocabTest, AnUnnamedEndIsAControlToken) {
  GgufVocab gguf = Convert("gpt2.json", "gpt2", "gpt-2");
  const auto plain = VocabFromGguf(gguf);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->bos_id, -1);
  EXPECT_TRUE(plain->eos_ids.empty());
  gguf.types.at(11) = static_cast<int32_t>(TokenKind::kControl);
  const auto falcon = VocabFromGguf(std::move(gguf));
  ASSERT_TRUE(falcon.ok());
  EXPECT_EQ(falcon->bos_id, 11);
  EXPECT_EQ(falcon->eos_ids, Ids{11});
}

TEST(GgufVocabTest, RefusesBrokenMetadata) {
  const auto refused = [](GgufVocab gguf, const std::string& sentence) {
    const auto spec = VocabFromGguf(std::move(gguf));
    ASSERT_FALSE(spec.ok());
    EXPECT_NE(spec.status().message().find(sentence), std::string::npos) << spec.status().message();
  };
  refused(GgufVocab{}, "has no tokens");
  const auto changed = [](auto change) {
    GgufVocab gguf = Convert("gpt2.json", "gpt2", "gpt-2");
    change(&gguf);
    return gguf;
  };
  refused(changed([](GgufVocab* g) { g->types.pop_back(); }), "token types");
  refused(changed([](GgufVocab* g) { g->scores.push_back(1); }), "scores");
  refused(changed([](GgufVocab* g) { g->merges = {}; }), "no merges");
  refused(changed([](GgufVocab* g) { g->merges.Add("ab"); }), "not a pair");
  refused(changed([](GgufVocab* g) { g->merges.Add(""); }), "not a pair");
  refused(changed([](GgufVocab* g) { g->bos_id = 1u << 31; }), "bos");
  refused(changed([](GgufVocab* g) { g->eot_id = 1u << 20; }), "eot");
  refused(changed([](GgufVocab* g) { g->model = "bert"; }), "bert");
  refused(changed([](GgufVocab* g) { g->pre = "unheard-of"; }), "unheard-of");
  refused(changed([](GgufVocab* g) { g->model = "llama"; }), "no scores");
}

}  // namespace
}  // namespace reprise
