// SPDX-License-Identifier: Apache-2.0
// Proves that a Ministral is the same inside a folder that reads pictures, and that it serves all
// of its context.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr const char* kFolder = "tests/golden/ministral3";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void ReplaceAll(const std::string& from, const std::string& to, std::string* text) {
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at)) {
    text->replace(at, from.size(), to);
    at += to.size();
  }
}

// The golden as the text part of a folder of type mistral3, its tensors named as in such folders.
class Mistral3Folder {
 public:
  explicit Mistral3Folder(const std::string& text_type)
      : path_(::testing::TempDir() + "mistral3_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
    std::string config = ReadAll(std::string(kFolder) + "/config.json");
    ReplaceAll("\"ministral3\"", "\"" + text_type + "\"", &config);
    std::ofstream(path_ + "/config.json")
        << R"({"model_type": "mistral3", "vision_config": {}, "text_config": )" << config << "}";
    const std::string weights = ReadAll(std::string(kFolder) + "/model.safetensors");
    uint64_t size = 0;
    std::memcpy(&size, weights.data(), sizeof(size));
    std::string header = weights.substr(sizeof(size), size);
    ReplaceAll("\"model.", "\"language_model.model.", &header);
    ReplaceAll("\"lm_head.", "\"language_model.lm_head.", &header);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t longer = header.size();
    std::ofstream out(path_ + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&longer), sizeof(longer));
    out << header << weights.substr(sizeof(size) + size);
  }
  ~Mistral3Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

Result<std::unique_ptr<Model>> Load(const std::string& path, TestMachine* machine,
                                    int64_t context_tokens = 0) {
  REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(path));
  LoadOptions options;
  options.kv = DType::kF32;
  options.context_tokens = context_tokens;
  return LoadModel(checkpoint, machine->context(), options);
}

TEST(Ministral3, IsTheSameBesideATower) {
  const Golden golden = ReadGolden(std::string(kFolder) + "/golden.safetensors");
  TestMachine machine;
  const auto plain = Load(kFolder, &machine);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const Mistral3Folder folder("ministral3");
  const auto beside = Load(folder.path(), &machine);
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  EXPECT_EQ(RunWhole(**plain, machine.context(), golden.tokens),
            RunWhole(**beside, machine.context(), golden.tokens));
}

TEST(Ministral3, AMistralIsRead) {
  const Mistral3Folder folder("mistral");
  TestMachine machine;
  const auto model = Load(folder.path(), &machine);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->card().context_length, 4096);
}

TEST(Ministral3, OtherTextsAreRefusedByName) {
  const Mistral3Folder folder("mistral4");
  TestMachine machine;
  const std::string sentence = Load(folder.path(), &machine).status().message();
  EXPECT_NE(sentence.find("mistral4"), std::string::npos) << sentence;
}

// Behind the context before YaRN, too, where queries are longer.
TEST(Ministral3, IsServedInFull) {
  TestMachine machine;
  const auto whole = Load(kFolder, &machine);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ((*whole)->card().context_length, 4096);
  EXPECT_TRUE(Load(kFolder, &machine, 4096).ok());
}

}  // namespace
}  // namespace reprise
