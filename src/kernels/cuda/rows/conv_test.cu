// SPDX-License-Identifier: Apache-2.0
// Convolutions and channel scans over the sequences of a step against the ops of the CPU: outputs,
// the states left behind, and the states of taps on the way, which are those of a shorter call.
#include <algorithm>
#include <memory>

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/rows/conv.h"
#include "kernels/scan_ops.h"

namespace reprise::cuda {
namespace {

struct TestSequence {
  int32_t rows;
  int32_t position;
  std::vector<int32_t> taps;  // the state after these rows but the last is kept; ascending
};

// A step with states in device memory, and the same states on the host.
class TestStep {
 public:
  TestStep(const std::vector<TestSequence>& sequences, int64_t state_floats, Rng& rng)
      : state_floats_(state_floats), offset_floats_(12) {
    uint32_t state = 1;
    for (const TestSequence& sequence : sequences) {
      SequenceView view;
      view.row_begin = rows_;
      view.row_count = sequence.rows;
      view.position = sequence.position;
      view.state = state++;
      view.tap_begin = static_cast<int32_t>(taps_.size());
      view.tap_count = static_cast<int32_t>(sequence.taps.size());
      for (const int32_t tap : sequence.taps) taps_.push_back({rows_ + tap + 1, state++});
      sequences_.push_back(view);
      rows_ += sequence.rows;
      for (int32_t t = 0; t < sequence.rows; ++t) positions_.push_back(sequence.position + t);
    }
    stride_ = offset_floats_ + state_floats + 4;
    host_ = Numbers(rng, int64_t{state} * stride_);
    device_sequences_ = std::make_unique<DeviceArray<SequenceView>>(sequences_);
    device_taps_ = std::make_unique<DeviceArray<TapView>>(taps_);
    device_ = std::make_unique<DeviceArray<float>>(host_);
  }

  int32_t rows() const { return rows_; }
  size_t state_offset() const { return size_t(offset_floats_) * 4; }
  StepView view() const {
    StepView step;
    step.rows = rows_;
    step.sequence_count = static_cast<int32_t>(sequences_.size());
    step.sequences = device_sequences_->data();
    step.taps = device_taps_->data();
    step.state_memory = reinterpret_cast<std::byte*>(device_->data());
    step.state_bytes = stride_ * 4;
    return step;
  }

  // Calls run(step of one sequence, without taps) for every sequence as far as its next tap or its
  // end, one piece after the other, and keeps the state where a tap says so.
  template <typename Run>
  void Each(const Run& run) {
    for (const SequenceView& sequence : sequences_) {
      StepSequence piece;
      piece.state = sequence.state;
      piece.row_begin = sequence.row_begin;
      const auto to = [&](int32_t end) {
        piece.row_count = end - piece.row_begin;
        piece.position = positions_[size_t(piece.row_begin)];
        run(StepOf(piece));
        piece.row_begin = end;
      };
      for (int32_t i = 0; i < sequence.tap_count; ++i) {
        const TapView& tap = taps_[size_t(sequence.tap_begin + i)];
        to(tap.row);
        std::copy_n(StateOf(sequence.state), state_floats_, StateOf(tap.state));
      }
      to(sequence.row_begin + sequence.row_count);
    }
  }

  ::testing::AssertionResult SameStates() const {
    const Floats got = device_->Read();
    for (size_t i = 0; i < host_.size(); ++i) {
      if (std::bit_cast<uint32_t>(host_[i]) == std::bit_cast<uint32_t>(got[i])) continue;
      return ::testing::AssertionFailure() << "state " << int64_t(i) / stride_ << " float "
                                           << int64_t(i) % stride_ - offset_floats_ << ": expected "
                                           << host_[i] << ", got " << got[i];
    }
    return ::testing::AssertionSuccess();
  }

 private:
  // Valid as long as `sequence` is.
  StepLayout StepOf(const StepSequence& sequence) {
    StepLayout step;
    step.host.tokens = positions_;  // any: as many as there are rows
    step.host.positions = positions_;
    step.host.sequences = {&sequence, 1};
    step.state_memory = PlaceAt(host_.data()).As<std::byte>();
    step.state_bytes = size_t(stride_) * 4;
    return step;
  }
  float* StateOf(uint32_t id) { return host_.data() + int64_t{id} * stride_ + offset_floats_; }

  int64_t state_floats_;
  int64_t offset_floats_;
  int64_t stride_ = 0;
  int32_t rows_ = 0;
  std::vector<int32_t> positions_;
  std::vector<SequenceView> sequences_;
  std::vector<TapView> taps_;
  Floats host_;
  std::unique_ptr<DeviceArray<SequenceView>> device_sequences_;
  std::unique_ptr<DeviceArray<TapView>> device_taps_;
  std::unique_ptr<DeviceArray<float>> device_;
};

const std::vector<std::vector<TestSequence>>& Steps() {
  static const std::vector<std::vector<TestSequence>> steps = {
      {{1, 5, {}}},
      {{1, 0, {}}, {2, 0, {0}}, {3, 9, {0, 1}}, {1, 64, {}}},
      {{300, 0, {0, 1, 2, 15, 16, 17, 63, 127, 298}}},
      {{17, 0, {3}}, {1, 100, {}}, {64, 64, {62}}, {16, 7, {0, 14}}, {5, 0, {3}}},
  };
  return steps;
}

class ChannelKernels : public ::testing::Test {
 protected:
  Rng rng_{11};
  SpecifiedOps cpu_;
};

TEST_F(ChannelKernels, ShortConv) {
  for (const std::vector<TestSequence>& sequences : Steps()) {
    for (const int64_t channels : {int64_t{5}, int64_t{256}, int64_t{6144}}) {
      for (const int reach : {2, 3, 4, 8}) {
        for (const bool silu : {false, true}) {
          TestStep step(sequences, (reach - 1) * channels, rng_);
          const RowShape shape = {step.rows(), channels, 3};
          DeviceRows x(shape, rng_), y(shape, rng_);
          const Floats weight = Numbers(rng_, reach * channels), bias = Numbers(rng_, channels);
          const DeviceArray<float> device_weight(weight), device_bias(bias);
          step.Each([&](const StepLayout& piece) {
            reprise::ShortConv(cpu_.context(), piece, step.state_offset(), PlaceAt(weight.data()),
                               silu ? PlaceAt(bias.data()) : nullptr, reach, silu, x.rows(),
                               y.rows());
          });
          ShortConv(nullptr, step.view(), step.state_offset(), device_weight.data(),
                    silu ? device_bias.data() : nullptr, reach, silu, x.view(), y.view());
          EXPECT_TRUE(y.Same()) << channels << " channels, " << reach << " rows";
          EXPECT_TRUE(step.SameStates()) << channels << " channels, " << reach << " rows";
        }
      }
    }
  }
}

TEST_F(ChannelKernels, TokenShift) {
  for (const std::vector<TestSequence>& sequences : Steps()) {
    for (const int64_t channels : {int64_t{5}, int64_t{2560}}) {
      TestStep step(sequences, channels, rng_);
      const RowShape shape = {step.rows(), channels, 3};
      DeviceRows x(shape, rng_), first(shape, rng_), second(shape, rng_);
      const Floats mix[2] = {Numbers(rng_, channels), Numbers(rng_, channels)};
      const DeviceArray<float> device_mix[2] = {DeviceArray<float>(mix[0]),
                                                DeviceArray<float>(mix[1])};
      step.Each([&](const StepLayout& piece) {
        const ConstFloats mixes[2] = {PlaceAt(mix[0].data()), PlaceAt(mix[1].data())};
        const Rows outs[2] = {first.rows(), second.rows()};
        reprise::TokenShift(cpu_.context(), piece, step.state_offset(), x.rows(), mixes, outs);
      });
      ShiftedOutputs outs;
      outs.count = 2;
      outs.mix[0] = device_mix[0].data(), outs.mix[1] = device_mix[1].data();
      outs.out[0] = first.view(), outs.out[1] = second.view();
      TokenShift(nullptr, step.view(), step.state_offset(), x.view(), outs);
      EXPECT_TRUE(first.Same());
      EXPECT_TRUE(second.Same());
      EXPECT_TRUE(step.SameStates());
    }
  }
}

Floats Gates(Rng& rng, int64_t count, float low, float high) {
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = low + (high - low) * rng.Uniform();
  return values;
}

TEST_F(ChannelKernels, RgLru) {
  for (const std::vector<TestSequence>& sequences : Steps()) {
    for (const int64_t channels : {int64_t{5}, int64_t{2560}}) {
      TestStep step(sequences, channels, rng_);
      const RowShape shape = {step.rows(), channels, 3};
      DeviceRows x(shape, rng_), r(shape, rng_), i(shape, rng_), y(shape, rng_);
      const Floats rate = Gates(rng_, channels, 0, 8);
      const DeviceArray<float> device_rate(rate);
      step.Each([&](const StepLayout& piece) {
        reprise::RgLru(cpu_.context(), piece, step.state_offset(), PlaceAt(rate.data()), x.rows(),
                       r.rows(), i.rows(), y.rows());
      });
      RgLru(nullptr, step.view(), step.state_offset(), device_rate.data(), x.view(), r.view(),
            i.view(), y.view());
      EXPECT_TRUE(y.Same());
      EXPECT_TRUE(step.SameStates());
    }
  }
}

TEST_F(ChannelKernels, SelectiveScan) {
  for (const std::vector<TestSequence>& sequences : Steps()) {
    for (const int64_t keys : {int64_t{3}, int64_t{16}, int64_t{64}}) {
      const int64_t channels = keys == 16 ? 4096 : 70;
      TestStep step(sequences, keys * channels, rng_);
      const RowShape wide = {step.rows(), channels, 3}, narrow = {step.rows(), keys, 1};
      DeviceRows x(wide, rng_), y(wide, rng_), b(narrow, rng_), c(narrow, rng_);
      DeviceRows dt(wide, Gates(rng_, step.rows() * (channels + 3), 0, 1));
      const Floats a = Gates(rng_, keys * channels, -4, 0), skip = Numbers(rng_, channels);
      const DeviceArray<float> device_a(a), device_skip(skip);
      step.Each([&](const StepLayout& piece) {
        reprise::SelectiveScan(cpu_.context(), piece, step.state_offset(), PlaceAt(a.data()),
                               PlaceAt(skip.data()), x.rows(), dt.rows(), b.rows(), c.rows(),
                               y.rows());
      });
      SelectiveScan(nullptr, step.view(), step.state_offset(), device_a.data(), device_skip.data(),
                    x.view(), dt.view(), b.view(), c.view(), y.view());
      EXPECT_TRUE(y.Same());
      EXPECT_TRUE(step.SameStates());
    }
  }
}

}  // namespace
}  // namespace reprise::cuda
