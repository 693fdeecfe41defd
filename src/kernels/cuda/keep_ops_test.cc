// SPDX-License-Identifier: Apache-2.0
// The ops of kernels/keep_ops.h on the device against the CPU's: for the same queries and keys the
// weights are the same bits, however rows came into steps, and the same rows are kept.
#include "kernels/keep_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cuda/cuda_backend.h"
#include "tensor/kv_row.h"

namespace reprise::cuda {
namespace {

constexpr int kPage = 64;

struct Case {
  int q_heads, kv_heads, head_dim, value_dim;
  DType type;
  float softcap;
  bool value_in_key;
  bool sinks = false;
};

// One sequence on one backend.
class OneSequence {
 public:
  OneSequence(Backend* backend, const Case& shape, int tokens)
      : backend_(backend),
        scratch_(backend->memory()),
        context_{backend, &scratch_},
        case_(shape),
        tokens_(tokens),
        pages_((tokens + kPage - 1) / kPage),
        shape_{shape.kv_heads, shape.head_dim, shape.value_dim, shape.type, shape.value_in_key} {
    place_ = {0, HeadBytes(shape.head_dim) * size_t(shape.kv_heads)};
    block_bytes_ = place_.v_offset + HeadBytes(shape.value_dim) * size_t(shape.kv_heads);
    blocks_ = Take(block_bytes_ * size_t(2 * pages_));
    for (int page = 0; page < pages_; ++page) ids_.push_back(uint32_t(2 * pages_ - 1 - page));
  }

  // Runs the tokens in steps that end at `ends`; returns the weights of the last `window`.
  std::vector<float> Score(const std::vector<float>& q, const std::vector<float>& k,
                           const std::vector<float>& v, int window, std::vector<int> ends) {
    const DeviceBuffer weights = Take(size_t(case_.kv_heads * tokens_) * sizeof(float));
    std::vector<float> sink_values;
    for (int head = 0; head < case_.q_heads; ++head) {
      sink_values.push_back(float(head % 5) * 1.25f - 2.0f);
    }
    const DeviceBuffer sinks = Words(sink_values);
    AttentionParams params{case_.q_heads, 0.17f, 0, case_.softcap};
    if (case_.sinks) params.sinks = sinks.data().As<const float>();
    ends.push_back(tokens_);
    int begin = 0;
    for (const int end : ends) {
      scratch_.Reset();
      const int rows = end - begin;
      std::vector<int32_t> tokens(static_cast<size_t>(rows)), positions, zeros = tokens;
      for (int i = begin; i < end; ++i) positions.push_back(i);
      std::vector<StepSequence> sequences = {{0, rows, begin, 0, pages_}};
      StepLayout layout;
      layout.host = {tokens, positions, zeros, sequences, ids_, {}, {}};
      layout.block_memory = blocks_.data();
      layout.block_bytes = block_bytes_;
      BeginStep(context_, &layout);
      const Rows keys = Upload(k, begin, rows, case_.kv_heads * case_.head_dim);
      const Rows values = Upload(v, begin, rows, case_.kv_heads * case_.value_dim);
      StoreKv(context_, layout, place_, shape_, keys, values);
      const int scored = std::min(rows, end - (tokens_ - window));
      if (scored > 0) {
        const Rows queries = Upload(q, begin, rows, case_.q_heads * case_.head_dim);
        ScoreKeys(context_, layout, place_, shape_, params, queries,
                  {0, rows - scored, scored, weights.data().As<float>(), tokens_});
      }
      begin = end;
    }
    std::vector<float> result(size_t(case_.kv_heads * tokens_));
    backend_->memory().DownloadArray<float>(result, weights.data().As<float>());
    return result;
  }

  // K and V, bit for bit, of the rows that were kept; the first `in_place` blocks stay.
  std::vector<uint32_t> Keep(const std::vector<int32_t>& rows, int count, int in_place,
                             bool transposed) {
    std::vector<uint32_t> to;
    for (int page = 0; page * kPage < count; ++page) {
      to.push_back(page < in_place ? ids_[size_t(page)] : uint32_t(page));
    }
    const DeviceBuffer from_ids = Words(ids_), to_ids = Words(to), lists = Words(rows);
    KeepRows(context_, place_, shape_,
             {blocks_.data(), block_bytes_, from_ids.data().As<const uint32_t>(),
              to_ids.data().As<const uint32_t>(), lists.data().As<const int32_t>(), count});
    std::vector<std::byte> bytes(block_bytes_ * size_t(2 * pages_));
    backend_->memory().Download(bytes.data(), blocks_.data(), bytes.size());
    std::vector<uint32_t> result;
    for (int head = 0; head < case_.kv_heads; ++head) {
      for (int i = 0; i < count; ++i) {
        const std::byte* block = bytes.data() + to[size_t(i / kPage)] * block_bytes_;
        const auto add = [&](size_t offset, int channels, bool by_channel) {
          const std::byte* at = block + offset + size_t(head) * HeadBytes(channels);
          for (int c = 0; c < channels; ++c) {
            result.push_back(Element(at, channels, i % kPage, c, by_channel));
          }
        };
        add(place_.k_offset, case_.head_dim, transposed);
        if (!case_.value_in_key) add(place_.v_offset, case_.value_dim, false);
      }
    }
    return result;
  }

 private:
  DeviceBuffer Take(size_t bytes) {
    auto buffer = backend_->memory().Allocate(bytes);
    CHECK(buffer.ok());
    return std::move(*buffer);
  }
  size_t HeadBytes(int channels) const { return kPage * KvRowBytes(case_.type, channels); }
  // The bits of a channel of a row of a head; those of its scale above them, where it has one.
  uint32_t Element(const std::byte* head, int channels, int row, int channel,
                   bool by_channel) const {
    const int groups = int(KvGroups(channels)), group = channel / kKvGroup;
    const int index = by_channel ? channel * kPage + row : row * channels + channel;
    const size_t width = case_.type == DType::kF32 ? 4 : case_.type == DType::kQ8_0 ? 1 : 2;
    uint32_t bits = 0;
    std::memcpy(&bits, head + size_t(index) * width, width);
    if (case_.type != DType::kQ8_0) return bits;
    uint16_t scale = 0;
    const int at = by_channel ? group * kPage + row : row * groups + group;
    std::memcpy(&scale, head + kPage * channels + 2 * at, 2);
    return bits | uint32_t{scale} << 8;
  }
  template <typename T>
  DeviceBuffer Words(const std::vector<T>& values) {
    DeviceBuffer buffer = Take(values.size() * sizeof(T));
    backend_->memory().Upload(buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }
  Rows Upload(const std::vector<float>& values, int begin, int rows, int64_t cols) {
    const DevicePtr<float> place = scratch_.Floats(size_t(rows * cols));
    backend_->memory().UploadArray<float>(
        place, std::span(values).subspan(size_t(begin * cols), size_t(rows * cols)));
    return {place, rows, cols, cols};
  }

  Backend* const backend_;
  ScratchArena scratch_;
  const OpContext context_;
  const Case case_;
  const int tokens_;
  const int pages_;
  const KvShape shape_;
  KvPlace place_;
  size_t block_bytes_ = 0;
  DeviceBuffer blocks_;
  std::vector<uint32_t> ids_;
};

// One sequence on both backends. Tests are small: compute-sanitizer takes minutes for the longest.
class KeepOpsTest : public ::testing::Test {
 protected:
  KeepOpsTest() : pool_(2), table_(*reprise::cpu::BuildTable("all")), cpu_(&pool_, &table_) {
    auto made = CudaBackend::Make(0, 1);
    CHECK(made.ok());
    gpu_ = std::move(*made);
  }
  struct Inputs {
    std::vector<float> q, k, v;
  };
  Inputs Random(const Case& shape, int tokens) {
    const auto rows = [&](int64_t width) {
      std::vector<float> values(static_cast<size_t>(tokens * width));
      for (float& value : values) value = rng_.Uniform() * 4 - 2;
      return values;
    };
    return {rows(shape.q_heads * shape.head_dim), rows(shape.kv_heads * shape.head_dim),
            rows(shape.kv_heads * shape.value_dim)};
  }

  ThreadPool pool_;
  const reprise::cpu::KernelTable table_;
  reprise::cpu::CpuBackend cpu_;
  std::unique_ptr<Backend> gpu_;
  Rng rng_{3};
};

// A shape, the tokens of the sequence, and in how many steps they come.
class KeepOpsScoreTest : public KeepOpsTest,
                         public ::testing::WithParamInterface<std::tuple<Case, int, int>> {};

TEST_P(KeepOpsScoreTest, WeightsAreThoseOfTheCpu) {
  const auto& [shape, tokens, steps] = GetParam();
  const int window = std::min(tokens - 5, 64);
  const Inputs inputs = Random(shape, tokens);
  OneSequence host(&cpu_, shape, tokens), device(gpu_.get(), shape, tokens);
  const auto expected = host.Score(inputs.q, inputs.k, inputs.v, window, {});
  std::vector<int> ends;
  if (steps == 2) ends = {tokens - 30};
  if (steps == 4) ends = {7, tokens - 3, tokens - 1};
  const auto got = device.Score(inputs.q, inputs.k, inputs.v, window, ends);
  EXPECT_EQ(0, std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)));
}

// A shape, and the tokens of the sequence.
class KeepOpsRowsTest : public KeepOpsTest,
                        public ::testing::WithParamInterface<std::tuple<Case, int>> {};

TEST_P(KeepOpsRowsTest, RowsAreThoseOfTheCpu) {
  const auto& [shape, tokens] = GetParam();
  const Inputs inputs = Random(shape, tokens);
  for (const int count : {1, tokens / 3, tokens - 1, tokens}) {
    std::vector<int32_t> rows;
    for (int head = 0; head < shape.kv_heads; ++head) {
      std::vector<int32_t> all(static_cast<size_t>(tokens));
      for (int i = 0; i < tokens; ++i) all[size_t(i)] = i;
      for (int i = tokens; i > count; --i) all.erase(all.begin() + int64_t(rng_.Below(all.size())));
      rows.insert(rows.end(), all.begin(), all.end());
    }
    for (const int in_place : {0, 1, 1000}) {
      OneSequence one(&cpu_, shape, tokens), other(gpu_.get(), shape, tokens);
      one.Score(inputs.q, inputs.k, inputs.v, 0, {});  // stores
      other.Score(inputs.q, inputs.k, inputs.v, 0, {});
      EXPECT_EQ(one.Keep(rows, count, in_place, true), other.Keep(rows, count, in_place, false))
          << count << " of " << tokens << ", " << in_place << " blocks in place";
    }
  }
}

const auto kShapes = ::testing::Values(
    Case{8, 2, 128, 128, DType::kF16, 0, false}, Case{16, 4, 256, 256, DType::kF16, 0, false},
    Case{12, 3, 80, 48, DType::kBF16, 30, false}, Case{5, 1, 37, 21, DType::kF16, 0, false, true},
    Case{4, 2, 64, 64, DType::kF32, 0, false}, Case{16, 1, 576, 512, DType::kF16, 0, true},
    Case{8, 2, 128, 128, DType::kQ8_0, 0, false}, Case{6, 3, 80, 37, DType::kQ8_0, 30, false},
    Case{16, 1, 576, 512, DType::kQ8_0, 0, true});
const auto kTokens = ::testing::Values(40, 64, 215, 1100);
INSTANTIATE_TEST_SUITE_P(Shapes, KeepOpsScoreTest,
                         ::testing::Combine(kShapes, kTokens, ::testing::Values(1, 2, 4)));
INSTANTIATE_TEST_SUITE_P(Shapes, KeepOpsRowsTest, ::testing::Combine(kShapes, kTokens));

}  // namespace
}  // namespace reprise::cuda
