// SPDX-License-Identifier: Apache-2.0
// Drafts change no token and no bit of state, on real arithmetic: random requests on a tiny model
// of every family. `reprise audit --speculate` is the longer form.
#include <filesystem>

#include "model/model_fixture.h"
#include "speculation_fixture.h"

namespace reprise {
namespace {

std::vector<std::filesystem::path> Models() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (std::filesystem::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

class SpeculationLaw : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(SpeculationLaw, HoldsForEveryFamily) {
  SetLogLevel(LogLevel::kWarning);
  const auto checkpoint = OpenCheckpoint(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  TestMachine machine;
  LoadOptions options;
  options.kv = DType::kF16;
  options.mtp = true;
  // ministral3 refuses more: its tiny model's scale of rotary positions begins to change there.
  options.context_tokens = GetParam().filename() == "ministral3" ? 128 : 256;
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ModelExecutor executor(**model, machine.context());
  ModelExecutor small(**model, machine.context());  // drafts for itself
  SpeculationTally tally;
  const uint64_t first = std::hash<std::string>()(GetParam().filename()) % 1000;
  int round = 0;
  for (const int junk_percent : {0, 20, 100, -1}) {
    const SpeculationCase one{.seed = first + uint64_t(++round),
                              .vocab = int32_t((*model)->card().vocab_size),
                              .prompt_max = 90,
                              .reply_max = 30,
                              .tight = round == 4,
                              .snapkv = round % 2 == 0,
                              .junk_percent = junk_percent,
                              .draft = round % 2 == 1 ? &small : nullptr};
    ASSERT_EQ(CompareWorlds(executor, one, &tally), "") << "seed " << one.seed;
  }
  EXPECT_GT(tally.accepted, 0u);
  EXPECT_GT(tally.run, tally.accepted);
  EXPECT_GT(tally.states, 0u);
  EXPECT_EQ(tally.by_source[size_t(Drafts::kMtp)] > 0, (*model)->card().mtp_state.has_value());

  // The likeliest tokens, and none but those: every draft is right.
  const SteadyClock clock;
  EngineOptions engine;
  engine.speculation = {Speculate::kDraft, 3, {}};
  engine.speculation.model = MakeModelDrafter(small, clock);
  CacheOptions cache;
  cache.context_tokens = 256;
  EngineFixture fixture(executor, cache, engine);
  GenerateRequest request;
  for (int i = 0; i < 40; ++i) request.prompt.push_back(TokenId(i * 7 % (*model)->vocab_size()));
  request.max_tokens = 24;
  request.sampling.temperature = 0;
  const DraftCount count = fixture.Ask(request).completion.speculation.total();
  EXPECT_GE(count.run, 23u - 7u);
  EXPECT_EQ(count.accepted, count.run);
}

INSTANTIATE_TEST_SUITE_P(Families, SpeculationLaw, testing::ValuesIn(Models()),
                         [](const auto& one) { return one.param.filename().string(); });

}  // namespace
}  // namespace reprise
