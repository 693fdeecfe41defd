// SPDX-License-Identifier: Apache-2.0
// SnapKV on every golden: what keys weigh is the same however a prompt came into steps; keeping
// every row changes nothing; what decodes behind some rows is what attends to them alone.
#include "model/snapkv/keep_kv.h"

#include <filesystem>

#include "model/model_fixture.h"
#include "model/snapkv/keep_list.h"

namespace reprise {
namespace {

constexpr int32_t kWindow = 9;

// A sequence whose last tokens are watched, and that can leave out K/V.
class Watched {
 public:
  Watched(const Model& model, const OpContext& context, int64_t token_max)
      : model_(model),
        context_(context),
        state_(LiveState::Create(model.state_spec(), 1, token_max, context.backend->memory())) {
    CHECK(state_.ok());
  }

  // Runs tokens in pieces of `piece`; returns the logits of all rows.
  std::vector<float> Run(std::span<const TokenId> tokens, size_t piece, bool watch) {
    const auto count = static_cast<int32_t>(tokens.size());
    if (watch) {
      stride_ = state_->extent(0).physical + count;
      auto weights = context_.backend->memory().Allocate(lists() * size_t(stride_) * sizeof(float));
      CHECK(weights.ok());
      weights_ = std::move(*weights);
    }
    std::vector<float> logits;
    for (int32_t done = 0; done < count;) {
      const int32_t rows = std::min(count - done, static_cast<int32_t>(piece));
      std::vector<uint32_t> all(static_cast<size_t>(rows));
      for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
      const SequenceSlice slice = state_->Next(0, 0, uint32_t(rows));
      BatchView batch{tokens.subspan(size_t(done), size_t(rows)), std::span(&slice, 1), all};
      const int32_t begin = std::max(done, count - kWindow);
      const WatchedRows watched{0, uint32_t(begin - done), uint32_t(done + rows - begin),
                                weights_.data().As<float>(), stride_};
      if (watch && begin < done + rows) batch.watched = std::span(&watched, 1);
      const size_t at = logits.size();
      logits.resize(at + size_t(rows) * size_t(model_.vocab_size()));
      const Status run = model_.Forward(context_, batch, state_->memory(), logits.data() + at);
      CHECK(run.ok());
      state_->Advance(0, rows);
      done += rows;
    }
    return logits;
  }

  std::vector<float> weights() const {
    std::vector<float> weights(lists() * size_t(stride_));
    context_.backend->memory().DownloadArray<float>(weights, weights_.data().As<float>());
    return weights;
  }
  size_t lists() const { return StateLayout(model_.state_spec()).list_count(); }
  int32_t rows() const { return state_->extent(0).physical; }

  void Keep(std::span<const int32_t> rows, int32_t kept) {
    const KeptKv kv{state_->blocks(0), state_->extent(0).physical, state_->blocks(0), rows, kept};
    const Status status = KeepKv({&context_, 1}, model_.state_spec(), state_->memory(), kv);
    ASSERT_TRUE(status.ok()) << status.message();
    state_->Keep(0, kept);
  }

 private:
  const Model& model_;
  const OpContext context_;
  Result<LiveState> state_;
  DeviceBuffer weights_;
  int32_t stride_ = 0;
};

std::vector<int32_t> Choose(const std::vector<float>& weights, size_t lists, int32_t kept) {
  std::vector<int32_t> rows(lists * size_t(kept));
  const size_t stride = weights.size() / lists;
  for (size_t list = 0; list < lists; ++list) {
    ChooseKept(std::span(weights).subspan(list * stride, stride), kWindow,
               std::span(rows).subspan(list * size_t(kept), size_t(kept)));
  }
  return rows;
}

class SnapKvGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = "tests/golden/" + GetParam();
    golden_ = ReadGolden(folder + "/golden.safetensors");
    const auto checkpoint = OpenCheckpoint(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto model = LoadModel(*checkpoint, machine_.context(), LoadOptions());
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    if (model_->state_spec().bytes_per_token(StateKind::kFullKv) == 0) {
      GTEST_SKIP() << "no full attention";
    }
    kept_ = KeptTokens(model_->state_spec(), {.budget = 24, .window = kWindow},
                       static_cast<int32_t>(golden_.tokens.size()));
  }

  TestMachine machine_;
  Golden golden_;
  std::unique_ptr<Model> model_;
  int32_t kept_ = 0;
};

TEST_P(SnapKvGolden, TheSameListsInAnyStepsOnAnyThreads) {
  const auto tokens = static_cast<int64_t>(golden_.tokens.size());
  Watched whole(*model_, machine_.context(), tokens);
  const std::vector<float> logits = whole.Run(golden_.tokens, golden_.tokens.size(), true);
  const std::vector<float> weights = whole.weights();
  for (const size_t piece : {1, 3, 7, 64}) {
    for (const int threads : {1, 3}) {
      TestMachine other(threads);
      Watched pieces(*model_, other.context(), tokens);
      const std::vector<float> again = pieces.Run(golden_.tokens, piece, true);
      // Watching changes nothing, and is changed by nothing.
      EXPECT_EQ(0, std::memcmp(again.data(), logits.data(), logits.size() * sizeof(float)));
      const std::vector<float> same = pieces.weights();
      ASSERT_EQ(same.size(), weights.size());
      EXPECT_EQ(0, std::memcmp(same.data(), weights.data(), same.size() * sizeof(float))) << piece;
    }
  }
}

TEST_P(SnapKvGolden, KeepingEveryRowChangesNothing) {
  const auto count = static_cast<int32_t>(golden_.tokens.size());
  const auto tokens = std::span<const TokenId>(golden_.tokens);
  Watched exact(*model_, machine_.context(), count + 8);
  Watched kept(*model_, machine_.context(), count + 8);
  exact.Run(tokens, tokens.size(), false);
  kept.Run(tokens, 13, true);
  std::vector<int32_t> rows;
  for (size_t list = 0; list < kept.lists(); ++list) {
    for (int32_t i = 0; i < count; ++i) rows.push_back(i);
  }
  kept.Keep(rows, count);
  EXPECT_EQ(exact.Run(tokens.first(8), 8, false), kept.Run(tokens.first(8), 3, false));
}

// Behind what was kept the reply is the same however it came into steps, and, where something was
// left out, another one than the exact.
TEST_P(SnapKvGolden, ARepliesBitsDoNotDependOnSteps) {
  const auto count = static_cast<int32_t>(golden_.tokens.size());
  if (kept_ == count) GTEST_SKIP() << "the golden is shorter than the model's window";
  const auto tokens = std::span<const TokenId>(golden_.tokens);
  std::vector<std::vector<float>> replies;
  for (const size_t piece : {1, 5, 8}) {
    Watched one(*model_, machine_.context(), count + 8);
    one.Run(tokens, 16 * piece, true);
    one.Keep(Choose(one.weights(), one.lists(), kept_), kept_);
    EXPECT_EQ(one.rows(), kept_);
    replies.push_back(one.Run(tokens.first(8), piece, false));
    EXPECT_EQ(one.rows(), kept_ + 8);
  }
  EXPECT_EQ(replies[0], replies[1]);
  EXPECT_EQ(replies[0], replies[2]);
  Watched exact(*model_, machine_.context(), count + 8);
  exact.Run(tokens, tokens.size(), false);
  EXPECT_NE(replies[0], exact.Run(tokens.first(8), 8, false));
}

std::vector<std::string> Families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Goldens, SnapKvGolden, ::testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace reprise
