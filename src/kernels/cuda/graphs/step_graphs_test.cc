// SPDX-License-Identifier: Apache-2.0
// A step that is asked for as a graph does what its ops would have done: the same as a step of its
// shape, and never what was recorded for another.
#include "kernels/cuda/graphs/step_graphs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_backend.h"

namespace reprise::cuda {
namespace {

class StepGraphsTest : public ::testing::Test {
 protected:
  StepGraphsTest() {
    auto made = CudaBackend::Make(0, 1);
    CHECK(made.ok());
    backend_ = std::move(*made);
    scratch_ = std::make_unique<ScratchArena>(backend_->memory());
    auto results = backend_->memory().Allocate(64);
    CHECK(results.ok());
    results_ = std::move(*results);
  }

  // A step with these rows, begun. What is given must outlive it.
  StepLayout Begin(std::span<const int32_t> sequence_of, std::span<const StepSequence> sequences,
                   std::span<const int32_t> logit_rows, std::span<const uint32_t> blocks,
                   const ChoiceBatch* choices = nullptr) {
    const auto zeros = std::span(zeros_).first(sequence_of.size());
    StepLayout step;
    step.host = {.tokens = zeros,
                 .positions = zeros,
                 .row_sequences = sequence_of,
                 .sequences = sequences,
                 .blocks = blocks,
                 .taps = {},
                 .logit_rows = logit_rows};
    step.choices = choices;
    backend_->BeginStep(*scratch_, &step);
    return step;
  }

  // One row of each of two sequences with so many blocks. The ops fill activations, which lie
  // behind the arrays of the step; returns the block ids as they are then.
  std::vector<uint32_t> BlocksAfter(int first, int second, float value) {
    const ScratchScope scope(*scratch_);
    const std::vector<int32_t> sequence_of = {0, 1};
    std::vector<StepSequence> sequences(2);
    sequences[0] = {.row_begin = 0, .row_count = 1, .block_begin = 0, .block_count = first};
    sequences[1] = {.row_begin = 1, .row_count = 1, .block_begin = first, .block_count = second};
    std::vector<uint32_t> blocks(size_t(first + second), 0);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = uint32_t(i);
    const StepLayout step = Begin(sequence_of, sequences, {}, blocks);
    const StepProgram program = {this, {results_.data().As<float>(), 0, 0, 0}, {}};
    Rows filled;
    backend_->RunStep(*scratch_, step, program, [&] {
      filled = {scratch_->Floats(512), 2, 256, 256};
      backend_->Fill(value, filled);
      backend_->Fill(value, {results_.data().As<float>(), 1, 16, 16});
    });
    std::vector<uint32_t> after(blocks.size());
    backend_->memory().DownloadArray<uint32_t>(after, step.device.blocks);
    EXPECT_EQ(after, blocks) << first << " and " << second << " blocks";
    return after;
  }

  const std::vector<int32_t> zeros_ = std::vector<int32_t>(8, 0);  // tokens of up to so many rows
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ScratchArena> scratch_;
  DeviceBuffer results_;
};

// The results lie elsewhere, so nothing but the table of blocks moves the activations.
TEST_F(StepGraphsTest, ActivationsStayBehindABlockTableThatGrows) {
  for (int i = 0; i < 3; ++i) BlocksAfter(40, 20, 1.0f);       // recorded, then asked for
  for (int i = 0; i < 3; ++i) BlocksAfter(40, 40, 1.0f);       // a table of twice the room
  for (int i = 0; i < 3; ++i) BlocksAfter(12000, 9000, 1.0f);  // arrays that are copied
  BlocksAfter(40, 20, 1.0f);
}

// The weights of a program went and came back, elsewhere: the graph has the old addresses.
TEST_F(StepGraphsTest, ForgottenStepsAreNotRunAgain) {
  const auto filled = [&] {
    std::vector<float> values(16);
    backend_->memory().DownloadArray<float>(values, results_.data().As<const float>());
    return values[0];
  };
  for (int i = 0; i < 3; ++i) BlocksAfter(8, 8, 1.0f);
  BlocksAfter(8, 8, 2.0f);
  ASSERT_EQ(filled(), 1.0f) << "it is no graph: the test shows nothing";
  ForgetSteps(*backend_);
  BlocksAfter(8, 8, 2.0f);
  EXPECT_EQ(filled(), 2.0f);
}

// Step by step other logits and flags, in the same places: the last steps are graphs. And without a
// step, in between.
TEST_F(StepGraphsTest, ChoicesAreThoseOfTheirStep) {
  constexpr int64_t kVocab = 5000, kRows = 2;
  auto results = backend_->memory().Allocate(kRows * kVocab * sizeof(float) + kRows);
  ASSERT_TRUE(results.ok());
  const Rows logits = {results->data().As<float>(), kRows, kVocab, kVocab};
  const DevicePtr<uint8_t> flags_at =
      (results->data() + kRows * kVocab * int64_t(sizeof(float))).As<uint8_t>();
  const std::vector<int32_t> sequence_of = {0, 1}, logit_rows(kRows, 0);
  std::vector<StepSequence> sequences(kRows);
  sequences[0] = {.row_begin = 0, .row_count = 1};
  sequences[1] = {.row_begin = 1, .row_count = 1};
  for (int i = 0; i < 8; ++i) {
    const int32_t tokens[] = {i, int32_t(kVocab) - 1 - i};
    std::vector<float> values(kRows * kVocab, -1);
    for (int64_t row = 0; row < kRows; ++row) values[size_t(row * kVocab + tokens[row])] = 1;
    values[kVocab - 1] = 1;  // as large, and later: it is not chosen
    const std::vector<uint8_t> flags = {uint8_t(i % 2), uint8_t(i / 2 % 2)};
    backend_->memory().UploadArray<float>(logits.data, values);
    backend_->memory().UploadArray<uint8_t>(flags_at, flags);
    const ScratchScope scope(*scratch_);
    const std::vector<ChoiceRow> greedy(kRows);
    ChoiceBatch batch;
    batch.rows = greedy;
    if (i != 6) {
      const StepLayout step =
          Begin(sequence_of, sequences, logit_rows, {}, i != 2 ? &batch : nullptr);
      const StepProgram program = {this, logits, flags_at};
      backend_->RunStep(*scratch_, step, program, [&] {
        backend_->Fill(0, {results_.data().As<float>(), 1, 16, 16});
      });
    }
    std::vector<ChosenToken> chosen(kRows);
    std::vector<uint8_t> came(kRows, 7);
    ASSERT_TRUE(
        backend_->ChooseTokens(*scratch_, logits, batch, {chosen, {}, came, flags_at}, {}).ok());
    for (size_t row = 0; row < kRows; ++row) EXPECT_EQ(chosen[row].token, tokens[row]) << i;
    EXPECT_EQ(came, flags) << i;
  }
}

// Flags that are the last op of a step are made with the choice, those in front of another op
// before it. One sequence has two rows, and there are fewer choices than sequences.
TEST_F(StepGraphsTest, FlagsAreThoseOfTheirRows) {
  constexpr int64_t kVocab = 300, kCols = 300, kRows = 5, kSequences = 4, kChoices = 2;
  auto memory =
      backend_->memory().Allocate((kChoices * kVocab + kRows * kCols) * sizeof(float) + kSequences);
  ASSERT_TRUE(memory.ok());
  const Rows logits = {memory->data().As<float>(), kChoices, kVocab, kVocab};
  const Rows x = {logits.data + kChoices * kVocab, kRows, kCols, kCols};
  const DevicePtr<uint8_t> flags_at = (x.data + kRows * kCols).As<uint8_t>();
  backend_->memory().UploadArray<float>(logits.data, std::vector<float>(kChoices * kVocab, 1));
  const std::vector<int32_t> sequence_of = {0, 1, 1, 2, 3}, choices = {2, 4};
  std::vector<StepSequence> sequences(kSequences);
  for (int32_t r = 0; r < kRows; ++r) {
    StepSequence& sequence = sequences[size_t(sequence_of[size_t(r)])];
    if (sequence.row_count++ == 0) sequence.row_begin = r;
  }
  const float bad[] = {std::numeric_limits<float>::infinity(), std::nanf(""), 1e38f};
  for (const bool last : {true, false}) {
    for (int i = 0; i < 6 * int(kRows); ++i) {
      const int64_t row = i % kRows, column = i % 2 == 0 ? kCols - 1 : i;
      std::vector<float> values(kRows * kCols, 2);
      values[size_t(row * kCols + column)] = bad[i % 3];
      std::vector<uint8_t> flags(kSequences, 1), came(kSequences, 7);
      if (i % 3 != 2) flags[size_t(sequence_of[size_t(row)])] = 0;
      backend_->memory().UploadArray<float>(x.data, values);
      const ScratchScope scope(*scratch_);
      // With a draw as well: the kernels that tell of it are others.
      std::vector<ChoiceRow> rows(kChoices);
      if (i % 4 > 1) rows[1].temperature = 1;
      ChoiceBatch batch;
      batch.rows = rows;
      const StepLayout step = Begin(sequence_of, sequences, choices, {}, i != 4 ? &batch : nullptr);
      const StepProgram program = {last ? static_cast<const void*>(&x) : this, logits, flags_at};
      backend_->RunStep(*scratch_, step, program, [&] {
        // Rows that are nobody's when the ops are done, as those of a model.
        const ScratchScope inner(*scratch_);
        const Rows y = {scratch_->Floats(kRows * kCols), kRows, kCols, kCols};
        backend_->Scale(x, 1, y);
        backend_->FiniteRows(step, y, flags_at);
        if (!last) backend_->Fill(0, y);
      });
      std::vector<ChosenToken> chosen(kChoices);
      ASSERT_TRUE(
          backend_->ChooseTokens(*scratch_, logits, batch, {chosen, {}, came, flags_at}, {}).ok());
      EXPECT_EQ(came, flags) << (last ? "the last op, " : "an op behind it, ") << i;
    }
  }
}

}  // namespace
}  // namespace reprise::cuda
