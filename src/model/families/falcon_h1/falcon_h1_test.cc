// SPDX-License-Identifier: Apache-2.0
// Proves that the multipliers of Falcon-H1 mean the same on activations (Hugging Face) and in
// weights (GGUF): a model with all of them different from 1 gives the same logits either way, and
// other logits than without them.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr const char* kFolder = "tests/golden/falcon_h1";

std::vector<float> LogitsOf(const std::string& path, const std::vector<TokenId>& tokens) {
  const auto checkpoint = OpenCheckpoint(path);
  CHECK(checkpoint.ok());
  TestMachine machine;
  LoadOptions options;
  options.kv = DType::kF32;
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  CHECK(model.ok());
  return RunWhole(**model, machine.context(), tokens);
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double(a[i]) - b[i]));
  return worst;
}

// The golden's folder with other multipliers in its config.json.
std::string WriteScaledFolder() {
  const std::string folder = ::testing::TempDir() + "falcon_h1_scaled";
  std::filesystem::create_directories(folder);
  std::filesystem::copy(std::string(kFolder) + "/model.safetensors", folder + "/model.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  std::ifstream in(std::string(kFolder) + "/config.json");
  std::stringstream text;
  text << in.rdbuf();
  std::string config = text.str();
  // The parser refuses a key that is there twice, so the old values go.
  const auto set = [&](const std::string& key, const std::string& value) {
    const size_t at = config.find("\"" + key + "\"");
    CHECK(at != std::string::npos);
    const size_t begin = config.find(':', at) + 1;
    const bool array = config.find('[', begin) < config.find(',', begin);
    const size_t end = array ? config.find(']', begin) + 1 : config.find_first_of(",\n", begin);
    config.replace(begin, end - begin, " " + value);
  };
  set("embedding_multiplier", "1.5");
  set("lm_head_multiplier", "0.7");
  set("attention_in_multiplier", "1.2");
  set("attention_out_multiplier", "0.8");
  set("key_multiplier", "0.6");
  set("ssm_in_multiplier", "1.3");
  set("ssm_out_multiplier", "0.9");
  set("ssm_multipliers", "[0.7, 1.1, 0.8, 1.2, 0.6]");
  set("mlp_multipliers", "[0.5, 1.4]");
  std::ofstream(folder + "/config.json") << config;
  return folder;
}

TEST(FalconH1, MultipliersOfActivationsAreFactorsOfWeights) {
  const Golden golden = ReadGolden(std::string(kFolder) + "/golden.safetensors");
  const std::string folder = WriteScaledFolder();
  const std::string gguf = ::testing::TempDir() + "falcon_h1_scaled.gguf";
  const auto source = OpenCheckpoint(folder);
  ASSERT_TRUE(source.ok()) << source.status().message();
  ConvertToGguf(*source, "f32", gguf);
  const std::vector<float> scaled = LogitsOf(folder, golden.tokens);
  const std::vector<float> through_gguf = LogitsOf(gguf, golden.tokens);
  double squares = 0;
  for (const float v : scaled) squares += double(v) * v;
  const double deviation = std::sqrt(squares / double(scaled.size()));
  EXPECT_LE(Distance(scaled, through_gguf), 1e-4 * deviation);
  EXPECT_GE(Distance(scaled, golden.logits), 0.1 * deviation);
  std::filesystem::remove_all(folder);
  std::filesystem::remove(gguf);
}

}  // namespace
}  // namespace reprise
