// SPDX-License-Identifier: Apache-2.0
// Proves that models touch activations, vectors of weights and state through ops and copies alone:
// they run, bit for bit, in memory that cannot be read or written in between.
#include <algorithm>
#include <filesystem>

#include "kernels/devices/closed_memory.h"
#include "model/model_fixture.h"

namespace reprise {
namespace {

class SeamTest : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests/golden")) {
    if (entry.path().filename() == "config.json") folders.push_back(entry.path().parent_path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

TEST_P(SeamTest, NothingIsTouchedBetweenOps) {
  const auto checkpoint = OpenCheckpoint(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<TokenId> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 7 % 50);
  TestMachine plain;
  LoadOptions options;
  options.mtp = true;
  const auto expected_model = LoadModel(*checkpoint, plain.context(), options);
  ASSERT_TRUE(expected_model.ok()) << expected_model.status().message();
  const std::vector<float> expected = RunWhole(**expected_model, plain.context(), tokens);

  ClosedMemory memory;
  {
    ThreadPool pool(2);
    const auto table = cpu::BuildTable("all");
    ASSERT_TRUE(table.ok());
    cpu::CpuBackend backend(&pool, &*table, memory);
    ScratchArena scratch(memory);
    const OpContext context = {&backend, &scratch, &memory};
    const auto model = LoadModel(*checkpoint, context, options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->card().digest, (*expected_model)->card().digest);
    const size_t pieces[] = {3, 1, 60, 6};
    EXPECT_EQ(RunInPieces(**model, context, tokens, pieces), expected);
  }
  EXPECT_GT(memory.ops(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Families, SeamTest, ::testing::ValuesIn(Folders()), [](const auto& param) {
  return std::filesystem::path(param.param).filename().string();
});

}  // namespace
}  // namespace reprise
