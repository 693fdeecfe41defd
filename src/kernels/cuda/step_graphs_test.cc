// SPDX-License-Identifier: Apache-2.0
// A step that is asked for as a graph does what its ops would have done: the same as a step of its
// shape, and never what was recorded for another.
#include "kernels/cuda/step_graphs.h"

#include <gtest/gtest.h>

#include <memory>
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

  // One row of each of two sequences with so many blocks. The ops fill activations, which lie
  // behind the arrays of the step; returns the block ids as they are then.
  std::vector<uint32_t> BlocksAfter(int first, int second, float value) {
    const ScratchScope scope(*scratch_);
    const std::vector<int32_t> zeros(2, 0), sequence_of = {0, 1};
    std::vector<StepSequence> sequences(2);
    sequences[0] = {.row_begin = 0, .row_count = 1, .block_begin = 0, .block_count = first};
    sequences[1] = {.row_begin = 1, .row_count = 1, .block_begin = first, .block_count = second};
    std::vector<uint32_t> blocks(size_t(first + second), 0);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = uint32_t(i);
    StepLayout step;
    step.host = {.tokens = zeros,
                 .positions = zeros,
                 .row_sequences = sequence_of,
                 .sequences = sequences,
                 .blocks = blocks,
                 .taps = {},
                 .logit_rows = {}};
    backend_->BeginStep(*scratch_, &step);
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

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ScratchArena> scratch_;
  DeviceBuffer results_;
};

// The results lie elsewhere, so nothing but the table of blocks moves the activations.
TEST_F(StepGraphsTest, ActivationsStayBehindABlockTableThatGrows) {
  for (int i = 0; i < 3; ++i) BlocksAfter(40, 20, 1.0f);  // recorded, then asked for
  for (int i = 0; i < 3; ++i) BlocksAfter(40, 40, 1.0f);  // a table of twice the room
  BlocksAfter(40, 20, 1.0f);
}

}  // namespace
}  // namespace reprise::cuda
