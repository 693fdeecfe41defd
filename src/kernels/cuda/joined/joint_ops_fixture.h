// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "device/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "tensor/half.h"

// For tests: operands of ops on the device, steps made by hand, and how many kernels ops are.
namespace reprise::cuda {

class JointOpsTest : public ::testing::Test {
 protected:
  JointOpsTest() {
    auto made = CudaBackend::Make(0, 1);
    CHECK(made.ok());
    backend_ = std::move(*made);
    scratch_ = std::make_unique<ScratchArena>(backend_->memory());
    context_ = {backend_.get(), scratch_.get()};
  }

  std::vector<float> Random(int64_t count, float low = -1, float high = 1) {
    std::vector<float> values(size_t(count), 0.0f);
    for (float& value : values) value = low + rng_.Uniform() * (high - low);
    return values;
  }
  DevicePtr<float> OnDevice(const std::vector<float>& values) {
    auto buffer = backend_->memory().Allocate(values.size() * sizeof(float));
    CHECK(buffer.ok());
    const DevicePtr<float> place = buffer->data().As<float>();
    buffers_.push_back(std::move(*buffer));
    backend_->memory().UploadArray<float>(place, values);
    return place;
  }
  Rows RowsOf(const std::vector<float>& values, int64_t cols) {
    return {OnDevice(values), int64_t(values.size()) / cols, cols, cols};
  }
  std::vector<float> Read(DevicePtr<const float> place, int64_t count) {
    std::vector<float> values(size_t(count), 0.0f);
    backend_->memory().DownloadArray<float>(values, place);
    return values;
  }
  std::vector<float> Read(const Rows& rows) { return Read(rows.data, rows.rows * rows.cols); }

  // So many matrices of a quantised type.
  Matrix Stack(DType type, int64_t count, int64_t rows, int64_t cols) {
    const auto blocks = RandomBlocks(rng_, type, count * rows, cols);
    auto packed = Matrix::Pack(context_, {type, count, rows, cols}, blocks.data(),
                               blocks.size() / size_t(count * rows));
    CHECK(packed.ok());
    return std::move(*packed);
  }
  Matrix Weights(DType type, int64_t rows, int64_t cols) {
    if (IsQuantised(type)) return Stack(type, 1, rows, cols);
    const auto values = Random(rows * cols, -0.5f, 0.5f);
    if (type == DType::kF32) return Packed<float>(type, rows, cols, values);
    std::vector<uint16_t> halves;
    for (const float x : values) halves.push_back(type == DType::kF16 ? F32ToF16(x) : F32ToBF16(x));
    return Packed<uint16_t>(type, rows, cols, halves);
  }

  template <typename T>
  Matrix Packed(DType type, int64_t rows, int64_t cols, const std::vector<T>& values) {
    auto packed =
        Matrix::Pack(context_, {type, 1, rows, cols},
                     reinterpret_cast<const std::byte*>(values.data()), size_t(cols) * sizeof(T));
    CHECK(packed.ok());
    return std::move(*packed);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ScratchArena> scratch_;
  OpContext context_;
  std::vector<DeviceBuffer> buffers_;
  Rng rng_{7};
};

inline void ExpectSame(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

// A step whose arrays live as long as it.
struct HandMade {
  std::vector<int32_t> tokens, positions, row_sequences;
  std::vector<StepSequence> sequences;
  std::vector<uint32_t> blocks;
  std::vector<StepTap> taps;
  StepLayout layout;

  // So many sequences, at their beginning.
  static HandMade OneRowEach(int64_t rows) {
    HandMade step;
    for (int32_t s = 0; s < rows; ++s) {
      step.sequences.push_back({s, 1});
      step.positions.push_back(0);
      step.row_sequences.push_back(s);
    }
    return step;
  }

  const StepLayout& Begin(const OpContext& context) {
    tokens.resize(row_sequences.size());
    layout.host = {tokens, positions, row_sequences, sequences, blocks, taps, {}};
    BeginStep(context, &layout);
    return layout;
  }
};

// Of a test; the last ones are graphs. A build for racecheck is a hundred times slower.
#ifdef REPRISE_RACECHECK
inline constexpr int kSteps = 3;
#else
inline constexpr int kSteps = 5;
#endif

// That ops are one kernel is seen in no bit.
class KernelsTest : public JointOpsTest {
 protected:
  // Of a step of a new program each time: a known one would be recorded while it is.
  size_t KernelsOf(int64_t rows, const std::function<void()>& ops) {
    return KernelsOf(HandMade::OneRowEach(rows), [&](const StepLayout&) { ops(); });
  }
  enum class Arrays { kBefore, kInStep };
  size_t KernelsOf(HandMade step, const std::function<void(const StepLayout&)>& ops,
                   Arrays arrays = Arrays::kBefore) {
    const StepProgram program = {.model = &programs_.emplace_back()};
    scratch_->Reset();
    CHECK(scratch_->Provide(size_t{1} << 24).ok());  // nothing is allocated meanwhile
    const StepLayout& layout = step.Begin(context_);
    // The arrays go with the first launch. In the step, only once: what marks them as read is
    // recorded with it.
    if (arrays == Arrays::kBefore) backend_->Fill(0, {scratch_->Floats(16), 1, 16, 16});
    const auto stream = static_cast<CudaMemory&>(backend_->memory()).stream();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    backend_->RunStep(*scratch_, layout, program, [&] { ops(layout); });
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    size_t kernels = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &kernels) == cudaSuccess);
    cudaGraphDestroy(graph);
    return kernels;
  }

 private:
  std::deque<char> programs_;
};

}  // namespace reprise::cuda
