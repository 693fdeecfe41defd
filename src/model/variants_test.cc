// SPDX-License-Identifier: Apache-2.0
// Proves that nothing that config.json says is silently ignored: with any parameter of a golden
// changed or removed, the model is refused with a sentence that names it (or the tensor that does
// not fit), or computes what the reference implementation computes; and a GGUF file made of it,
// too.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_writer.h"
#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr size_t kTokens = 40;  // of the golden's, as the reference took

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> ReadFloats(const StoredTensor& tensor) {
  std::vector<float> values(size_t(tensor.shape.elements()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The document of all variants; lives as long as the program.
const JsonValue& AllVariants() {
  static const auto& document =
      *new auto(JsonDocument::Parse(ReadAll("tests/golden/variants.json")));
  CHECK(document.ok());
  return document->root();
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const JsonValue::Member& member : AllVariants().members()) names.emplace_back(member.key);
  return names;
}

// Whether a sentence says what is wrong with `value`: one of its names or texts. That of a number
// may say what it does not fit together with.
bool Names(const std::string& sentence, const JsonValue& value) {
  if (value.is_number()) return true;
  if (value.is_string()) return sentence.find(value.as_string()) != std::string::npos;
  if (value.is_array()) {
    return std::any_of(value.items().begin(), value.items().end(),
                       [&](const JsonValue& item) { return Names(sentence, item); });
  }
  if (!value.is_object()) return false;
  return std::any_of(
      value.members().begin(), value.members().end(), [&](const JsonValue::Member& member) {
        return sentence.find(member.key) != std::string::npos || Names(sentence, member.value);
      });
}

// The reference's answer for as many tokens as the variants have.
std::string GoldenFile(const std::string& folder) {
  const std::string shorter = folder + "/golden_short.safetensors";
  return std::filesystem::exists(shorter) ? shorter : folder + "/golden.safetensors";
}

class VariantsTest : public ::testing::TestWithParam<std::string> {
 protected:
  VariantsTest()
      : source_("tests/golden/" + GetParam()),
        folder_(::testing::TempDir() + "variants_" + GetParam() + std::to_string(::getpid())),
        golden_(ReadGolden(GoldenFile(source_))) {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(source_ + "/model.safetensors", folder_ + "/model.safetensors");
    auto config = JsonDocument::Parse(ReadAll(source_ + "/config.json"));
    CHECK(config.ok());
    config_.emplace(std::move(*config));
    double sum = 0;
    for (const float v : golden_.logits) sum += double(v) * double(v);
    spread_ = std::sqrt(sum / double(golden_.logits.size()));
  }
  ~VariantsTest() override { std::filesystem::remove_all(folder_); }

  void WriteConfig(const JsonValue& variant) const {
    std::string text;
    JsonWriter json(&text);
    json.BeginObject();
    const JsonValue& set = *variant.Find("set");
    const auto dropped = variant.Find("drop")->items();
    for (const JsonValue::Member& member : config_->root().members()) {
      const bool drop = std::any_of(dropped.begin(), dropped.end(), [&](const JsonValue& name) {
        return name.as_string() == member.key;
      });
      if (!drop && set.Find(member.key) == nullptr) json.Key(member.key).Value(member.value);
    }
    for (const JsonValue::Member& member : set.members()) json.Key(member.key).Value(member.value);
    json.EndObject();
    std::ofstream(folder_ + "/config.json") << text;
  }

  // Logits of the last of the tokens; the refusal where there is one.
  Result<std::vector<float>> Compute(const std::string& path) {
    REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
    LoadOptions options;
    options.kv = DType::kF32;
    options.context_tokens = int64_t(kTokens);
    REPRISE_ASSIGN(const auto model, LoadModel(checkpoint, machine_.context(), options));
    const auto tokens = std::span(golden_.tokens).first(kTokens);
    const std::vector<float> all = RunWhole(*model, machine_.context(), tokens);
    return std::vector<float>(all.end() - model->vocab_size(), all.end());
  }

  bool IsClose(std::span<const float> logits, std::span<const float> expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(logits[i] - expected[i]) <= 2e-3 * spread_)) return false;
    }
    return true;
  }

  const std::string source_, folder_;
  const Golden golden_;
  std::optional<JsonDocument> config_;
  double spread_ = 0;
  TestMachine machine_{1};
};

TEST_P(VariantsTest, EveryParameterCountsOrIsRefusedByName) {
  const std::string rows_text = ReadAll("tests/golden/variants.safetensors");
  const auto tables = SafetensorsFile::Parse(std::as_bytes(std::span(rows_text)));
  ASSERT_TRUE(tables.ok());
  const StoredTensor* table = tables->Find(GetParam());
  const size_t width = size_t(table->shape[1]);
  const std::vector<float> rows = ReadFloats(*table);
  const auto plain =
      std::span(golden_.logits)
          .subspan((kTokens - 1) * size_t(config_->root().Find("vocab_size")->as_int()), width);
  size_t row = 0, refused = 0, computed = 0;
  for (const JsonValue& variant : AllVariants().Find(GetParam())->items()) {
    const std::string_view expect = variant.Find("expect")->as_string();
    const std::span<const float> expected =
        expect == "differs" ? std::span(rows).subspan(width * row++, width) : plain;
    std::string shown;
    JsonWriter(&shown).Value(variant);
    WriteConfig(variant);
    const auto logits = Compute(folder_);
    if (!logits.ok()) {
      ++refused;
      const std::string& sentence = logits.status().message();
      if (sentence.find(".weight") == std::string::npos &&
          sentence.find(".bias") == std::string::npos && !Names(sentence, *variant.Find("set")) &&
          variant.Find("drop")->items().empty()) {
        ADD_FAILURE() << shown << " is refused without its name: " << sentence;
      }
      continue;
    }
    ++computed;
    if (expect == "fails" && !variant.Find("drop")->items().empty() && IsClose(*logits, plain)) {
      // The reference has another default than what the tensors say.
    } else if (expect == "fails") {
      ADD_FAILURE() << shown << " is taken";
    } else if (!IsClose(*logits, expected)) {
      ADD_FAILURE() << shown << " gives something else"
                    << (IsClose(*logits, plain) ? ": it is ignored" : "");
    } else if (expect == "differs") {
      const std::string file = folder_ + "/model.gguf";
      ConvertToGguf(*OpenCheckpoint(folder_), "f32", file);
      const auto through = Compute(file);
      ASSERT_TRUE(through.ok()) << shown << " through GGUF: " << through.status().message();
      EXPECT_TRUE(IsClose(*through, expected)) << shown << " gives something else through GGUF"
                                               << (IsClose(*through, plain) ? ": it is lost" : "");
      std::filesystem::remove(file);
    }
  }
  RecordProperty("refused", int(refused));
  RecordProperty("computed", int(computed));
}

INSTANTIATE_TEST_SUITE_P(Families, VariantsTest, ::testing::ValuesIn(Families()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace reprise
