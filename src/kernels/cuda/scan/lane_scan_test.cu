// SPDX-License-Identifier: Apache-2.0
// Scans on the device against their specification, bit by bit, with states written on the way.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/scan/lane_scan.h"
#include "kernels/reference/gpu/lane_scan.h"

namespace reprise::cuda {
namespace {

enum class Rule { kDelta, kKeyDecay, kSsd, kWkv7 };

struct Case {
  Rule rule;
  int heads, key_heads, keys, columns;
  bool tiled;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << int(c.rule) << " " << c.heads << "/" << c.key_heads << " " << c.keys << "x"
             << c.columns;
}

std::vector<float> Uniform(size_t count, unsigned seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

// Operands of all tokens, on both sides.
struct Operand {
  Operand(int64_t rows, int heads, int width, unsigned seed, float low, float high)
      : heads(heads),
        width(width),
        host(Uniform(size_t(rows * heads * width), seed, low, high)),
        device(host) {}
  HeadRows view() const { return {device.data(), int64_t{heads} * width, width}; }
  cpu::TokenRows rows(int64_t row, int head) const {
    return {host.data() + row * heads * width + head * width, int64_t{heads} * width};
  }
  int heads, width;
  std::vector<float> host;
  DeviceArray<float> device;
};

class LaneScanTest : public ::testing::TestWithParam<Case> {};

TEST_P(LaneScanTest, EqualsSpecification) {
  const Case& shape = GetParam();
  const std::vector<int> lengths = {1, 70, 16, 2, 33};
  const std::vector<std::vector<int>> tapped = {{}, {0, 15, 16, 40, 68}, {7}, {0}, {}};
  const int64_t state_floats = int64_t{shape.heads} * shape.keys * shape.columns;
  const int64_t state_bytes = state_floats * 4 + 256;
  std::vector<SequenceView> sequences;
  std::vector<TapView> taps;
  int32_t rows = 0;
  uint32_t states = uint32_t(lengths.size());
  for (size_t s = 0; s < lengths.size(); ++s) {
    sequences.push_back({rows, lengths[s], 0, 0, 0, uint32_t(lengths.size() - 1 - s),
                         int32_t(taps.size()), int32_t(tapped[s].size())});
    for (const int t : tapped[s]) taps.push_back({rows + t + 1, states++});
    rows += lengths[s];
  }
  const Operand a(rows, shape.key_heads, shape.keys, 1, -0.3f, 0.3f);
  const Operand b(rows, shape.key_heads, shape.keys, 2, -0.3f, 0.3f);
  const Operand decay_keys(rows, shape.key_heads, shape.keys, 3, 0.8f, 1);
  const Operand d(rows, shape.key_heads, shape.keys, 4, -0.3f, 0.3f);
  const Operand e(rows, shape.key_heads, shape.keys, 5, -0.3f, 0.3f);
  const Operand column(rows, shape.heads, shape.columns, 6, -1, 1);
  const Operand decay(rows, shape.heads, 1, 7, 0.7f, 1);
  const Operand beta(rows, shape.heads, 1, 8, 0, 1);
  const std::vector<float> skip = Uniform(size_t(shape.heads), 9, -1, 1);
  const DeviceArray<float> device_skip(skip);
  std::vector<float> memory = Uniform(size_t(states) * size_t(state_bytes / 4), 10, -1, 1);
  const DeviceArray<float> device_memory(memory);
  const DeviceArray<SequenceView> device_sequences(sequences);
  const DeviceArray<TapView> device_taps(taps);
  DeviceArray<float> y(size_t(rows * shape.heads * shape.columns));

  StepView step;
  step.rows = rows, step.sequence_count = int32_t(lengths.size());
  step.sequences = device_sequences.data(), step.taps = device_taps.data();
  step.state_memory = reinterpret_cast<std::byte*>(device_memory.data());
  step.state_bytes = state_bytes;
  const LaneScanShape view{shape.heads, shape.keys, shape.columns, shape.key_heads, shape.tiled};
  const int64_t width = int64_t{shape.heads} * shape.columns;
  const View out{y.data(), rows, width, width};
  constexpr int64_t kOffset = 64;
  const DeltaOperands delta{b.view(), a.view(), column.view(), decay.view(), beta.view()};
  switch (shape.rule) {
    case Rule::kDelta:
      GatedDelta(nullptr, step, kOffset, view, delta, out);
      break;
    case Rule::kKeyDecay: {
      DeltaOperands by_key = delta;
      by_key.decay = decay_keys.view();
      KeyDecayDelta(nullptr, step, kOffset, view, by_key, out);
      break;
    }
    case Rule::kSsd:
      Ssd(nullptr, step, kOffset, view,
          {column.view(), a.view(), b.view(), beta.view(), decay.view(), device_skip.data()}, out);
      break;
    case Rule::kWkv7:
      Wkv7(nullptr, step, kOffset, view,
           {a.view(), decay_keys.view(), b.view(), column.view(), d.view(), e.view()}, out);
      break;
  }

  std::vector<float> expected(size_t(rows * width));
  for (const SequenceView& sequence : sequences) {
    int done = 0;
    for (int part = 0; part <= sequence.tap_count; ++part) {
      const bool last = part == sequence.tap_count;
      const TapView* tap = last ? nullptr : &taps[size_t(sequence.tap_begin + part)];
      const int end = last ? sequence.row_count : tap->row - sequence.row_begin;
      float* state = memory.data() + (sequence.state * state_bytes + kOffset) / 4;
      for (int head = 0; head < shape.heads; ++head) {
        const int key_head =
            shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
        const int64_t row = sequence.row_begin + done;
        const cpu::MatrixState matrix{state + int64_t{head} * shape.keys * shape.columns,
                                      shape.columns, shape.keys, shape.columns};
        float* to = expected.data() + row * width + int64_t{head} * shape.columns;
        const cpu::TokenRows ka = a.rows(row, key_head), kb = b.rows(row, key_head);
        const cpu::TokenRows kd = d.rows(row, key_head), ke = e.rows(row, key_head);
        const cpu::TokenRows kw = decay_keys.rows(row, key_head), v = column.rows(row, head);
        const cpu::TokenRows dec = decay.rows(row, head), bet = beta.rows(row, head);
        const int count = end - done;
        switch (shape.rule) {
          case Rule::kDelta:
            reference::LaneDelta({matrix, count, kb, ka, v, dec, bet, to, width});
            break;
          case Rule::kKeyDecay:
            reference::LaneKeyDecayDelta({matrix, count, kb, ka, kw, v, bet, to, width});
            break;
          case Rule::kSsd:
            reference::LaneSsd({matrix, count, ka, kb, v, bet, dec, skip[size_t(head)], to, width});
            break;
          case Rule::kWkv7:
            reference::LaneWkv7({matrix, count, ka, kw, kb, kd, ke, v, to, width});
            break;
        }
      }
      if (!last) {
        std::memcpy(memory.data() + (tap->state * state_bytes + kOffset) / 4, state,
                    size_t(state_floats) * 4);
      }
      done = end;
    }
  }
  const std::vector<float> got = y.Read();
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0);
  const std::vector<float> left = device_memory.Read();
  EXPECT_EQ(std::memcmp(left.data(), memory.data(), left.size() * 4), 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, LaneScanTest,
    ::testing::Values(
        Case{Rule::kDelta, 16, 16, 128, 128, false}, Case{Rule::kDelta, 32, 16, 128, 128, true},
        Case{Rule::kDelta, 4, 2, 8, 12, false}, Case{Rule::kDelta, 2, 1, 30, 17, false},
        Case{Rule::kKeyDecay, 32, 32, 128, 128, false}, Case{Rule::kKeyDecay, 2, 2, 16, 16, false},
        Case{Rule::kKeyDecay, 2, 2, 256, 24, false}, Case{Rule::kSsd, 80, 8, 128, 64, false},
        Case{Rule::kSsd, 4, 2, 256, 24, false}, Case{Rule::kWkv7, 32, 32, 64, 64, false},
        Case{Rule::kWkv7, 3, 3, 16, 16, false}, Case{Rule::kWkv7, 2, 2, 128, 40, false},
        Case{Rule::kWkv7, 2, 2, 256, 24, false}));

}  // namespace
}  // namespace reprise::cuda
