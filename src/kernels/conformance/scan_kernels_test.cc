// SPDX-License-Identifier: Apache-2.0
// Proves that every scan of every overlay this CPU can run gives the bits of kernels/reference over
// shapes with tails (outputs and states poisoned and padded), and that the reference of each scan
// is its formula, against a naive double-precision version, however the rows are cut into calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/table.h"

namespace reprise {
namespace {

using cpu::KernelTable;
using cpu::MatrixState;
using cpu::TokenRows;
using Floats = std::vector<float>;

constexpr int kKeys[] = {1, 16, 33, 64, 128, 130};
constexpr int kColumns[] = {1, 15, 16, 48, 64, 70};
constexpr int kRows[] = {1, 2, 5, 19};

Floats Random(Rng& rng, int64_t n, float low, float high) {
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = low + rng.Uniform() * (high - low);
  return x;
}

// Rows of `width` values with a gap between them.
struct Operand {
  Operand(Rng& rng, int rows, int width, float low, float high)
      : stride(width + 3), data(Random(rng, int64_t{rows} * stride, low, high)) {}
  TokenRows From(int row) const { return {data.data() + row * stride, stride}; }
  double At(int row, int i) const { return data[static_cast<size_t>(row * stride + i)]; }

  int64_t stride;
  Floats data;
};

// A scan: runs rows [begin, end) on a state, writes y (rows `columns + 2` apart), and says what one
// step does in double precision.
struct Case {
  int keys;
  int columns;
  int rows;
  int64_t state_floats() const { return int64_t{keys} * state_stride(); }
  int64_t state_stride() const { return columns + 1; }
  int64_t y_stride() const { return columns + 2; }
};
using RunScan = std::function<void(const KernelTable&, float* state, float* y, int begin, int end)>;
// step(state in double [keys, columns], row) -> y[columns]
using Step = std::function<std::vector<double>(std::vector<double>& state, int row)>;

class ScanKernels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto scalar = cpu::BuildTable("scalar");
    auto table = cpu::BuildTable(GetParam());
    ASSERT_TRUE(scalar.ok() && table.ok());
    reference_ = *scalar;
    table_ = *table;
  }

  // State and output in one padded, poisoned piece of memory.
  Floats Execute(const KernelTable& table, const Case& shape, const Floats& state,
                 const RunScan& run, int cut) {
    constexpr size_t kPad = 32;
    Floats memory(2 * kPad + state.size() + size_t(shape.rows * shape.y_stride()), -777.0f);
    std::copy(state.begin(), state.end(), memory.begin() + kPad);
    float* s = memory.data() + kPad;
    float* y = s + state.size();
    if (cut > 0) run(table, s, y, 0, cut);
    run(table, s, y + cut * shape.y_stride(), cut, shape.rows);
    return memory;
  }

  void Check(const Case& shape, const RunScan& run, const Step& step, double tolerance,
             int64_t state_floats) {
    const std::string what = "keys " + std::to_string(shape.keys) + " columns " +
                             std::to_string(shape.columns) + " rows " + std::to_string(shape.rows);
    const Floats state = Random(rng_, state_floats, -1, 1);
    const Floats expected = Execute(reference_, shape, state, run, 0);
    for (int cut = 0; cut < shape.rows; cut += 1 + shape.rows / 3) {
      const Floats got = Execute(table_, shape, state, run, cut);
      ASSERT_EQ(0, std::memcmp(expected.data(), got.data(), got.size() * 4)) << what << " " << cut;
    }
    std::vector<double> exact(size_t(shape.keys * shape.columns));
    for (int i = 0; i < shape.keys; ++i) {
      for (int c = 0; c < shape.columns; ++c) {
        exact[size_t(i * shape.columns + c)] = state[size_t(i * shape.state_stride() + c)];
      }
    }
    const float* y = expected.data() + 32 + state.size();
    for (int t = 0; t < shape.rows; ++t) {
      const std::vector<double> out = step(exact, t);
      for (int c = 0; c < shape.columns; ++c) {
        ASSERT_NEAR(y[t * shape.y_stride() + c], out[size_t(c)], tolerance) << what << " row " << t;
      }
    }
  }

  template <typename F>
  void ForShapes(const F& f) {
    for (const int keys : kKeys) {
      for (const int columns : kColumns) {
        for (const int rows : kRows) f(Case{keys, columns, rows});
      }
    }
  }

  KernelTable reference_ = {};
  KernelTable table_ = {};
  Rng rng_{11};
};

TEST_P(ScanKernels, KeyDecayDelta) {
  ForShapes([&](const Case& s) {
    const float unit = 1 / std::sqrt(float(s.keys));
    const Operand q(rng_, s.rows, s.keys, -unit, unit);
    const Operand k(rng_, s.rows, s.keys, -unit, unit);
    const Operand decay(rng_, s.rows, s.keys, 0, 1);
    const Operand v(rng_, s.rows, s.columns, -1, 1);
    const Operand beta(rng_, s.rows, 1, 0, 1);
    const RunScan run = [&](const KernelTable& t, float* state, float* y, int begin, int end) {
      const cpu::KeyDecayDeltaScan scan = {{state, s.state_stride(), s.keys, s.columns},
                                           end - begin,
                                           q.From(begin),
                                           k.From(begin),
                                           decay.From(begin),
                                           v.From(begin),
                                           beta.From(begin),
                                           y,
                                           s.y_stride()};
      t.scan.key_decay_delta(&scan);
    };
    const Step step = [&](std::vector<double>& state, int t) {
      std::vector<double> y(size_t(s.columns), 0.0);
      for (int c = 0; c < s.columns; ++c) {
        double read = 0;
        for (int i = 0; i < s.keys; ++i) {
          state[size_t(i * s.columns + c)] *= decay.At(t, i);
          read += state[size_t(i * s.columns + c)] * k.At(t, i);
        }
        for (int i = 0; i < s.keys; ++i) {
          double& at = state[size_t(i * s.columns + c)];
          at += k.At(t, i) * beta.At(t, 0) * (v.At(t, c) - read);
          y[size_t(c)] += at * q.At(t, i);
        }
      }
      return y;
    };
    Check(s, run, step, 2e-5, s.state_floats());
  });
}

TEST_P(ScanKernels, Ssd) {
  ForShapes([&](const Case& s) {
    const float unit = 1 / std::sqrt(float(s.keys));
    const Operand b(rng_, s.rows, s.keys, -unit, unit);
    const Operand c(rng_, s.rows, s.keys, -unit, unit);
    const Operand x(rng_, s.rows, s.columns, -1, 1);
    const Operand dt(rng_, s.rows, 1, 0, 1);
    const Operand decay(rng_, s.rows, 1, 0, 1);
    const RunScan run = [&](const KernelTable& t, float* state, float* y, int begin, int end) {
      const cpu::SsdScan scan = {{state, s.state_stride(), s.keys, s.columns},
                                 end - begin,
                                 b.From(begin),
                                 c.From(begin),
                                 x.From(begin),
                                 dt.From(begin),
                                 decay.From(begin),
                                 0.7f,
                                 y,
                                 s.y_stride()};
      t.scan.ssd(&scan);
    };
    const Step step = [&](std::vector<double>& state, int t) {
      std::vector<double> y;
      for (int p = 0; p < s.columns; ++p) {
        double out = double(0.7f) * x.At(t, p);
        for (int i = 0; i < s.keys; ++i) {
          double& at = state[size_t(i * s.columns + p)];
          at = at * decay.At(t, 0) + b.At(t, i) * dt.At(t, 0) * x.At(t, p);
          out += at * c.At(t, i);
        }
        y.push_back(out);
      }
      return y;
    };
    Check(s, run, step, 2e-5, s.state_floats());
  });
}

TEST_P(ScanKernels, Wkv7) {
  ForShapes([&](const Case& s) {
    const float unit = 1 / std::sqrt(float(s.keys));
    const Operand r(rng_, s.rows, s.keys, -unit, unit);
    const Operand w(rng_, s.rows, s.keys, 0.545f, 1);
    const Operand k(rng_, s.rows, s.keys, -unit, unit);
    const Operand a(rng_, s.rows, s.keys, -unit, unit);
    const Operand b(rng_, s.rows, s.keys, -unit, unit);
    const Operand v(rng_, s.rows, s.columns, -1, 1);
    const RunScan run = [&](const KernelTable& t, float* state, float* y, int begin, int end) {
      const cpu::Wkv7Scan scan = {{state, s.state_stride(), s.keys, s.columns},
                                  end - begin,
                                  r.From(begin),
                                  w.From(begin),
                                  k.From(begin),
                                  a.From(begin),
                                  b.From(begin),
                                  v.From(begin),
                                  y,
                                  s.y_stride()};
      t.scan.wkv7(&scan);
    };
    const Step step = [&](std::vector<double>& state, int t) {
      std::vector<double> y;
      for (int c = 0; c < s.columns; ++c) {
        double read = 0;
        for (int i = 0; i < s.keys; ++i) read += state[size_t(i * s.columns + c)] * a.At(t, i);
        double out = 0;
        for (int i = 0; i < s.keys; ++i) {
          double& at = state[size_t(i * s.columns + c)];
          at = at * w.At(t, i) + v.At(t, c) * k.At(t, i) + read * b.At(t, i);
          out += at * r.At(t, i);
        }
        y.push_back(out);
      }
      return y;
    };
    Check(s, run, step, 5e-5, s.state_floats());
  });
}

TEST_P(ScanKernels, Selective) {
  ForShapes([&](const Case& s) {
    if (s.keys > 33) return;
    const Operand a(rng_, s.keys, s.columns, -4, 0);
    const Operand skip(rng_, 1, s.columns, -1, 1);
    const Operand x(rng_, s.rows, s.columns, -1, 1);
    const Operand dt(rng_, s.rows, s.columns, 0, 1);
    const Operand b(rng_, s.rows, s.keys, -1, 1);
    const Operand c(rng_, s.rows, s.keys, -1, 1);
    const RunScan run = [&](const KernelTable& t, float* state, float* y, int begin, int end) {
      const cpu::SelectiveScan scan = {{state, s.state_stride(), s.keys, s.columns},
                                       end - begin,
                                       a.data.data(),
                                       a.stride,
                                       skip.data.data(),
                                       x.From(begin),
                                       dt.From(begin),
                                       b.From(begin),
                                       c.From(begin),
                                       y,
                                       s.y_stride()};
      t.scan.selective(&scan);
    };
    const Step step = [&](std::vector<double>& state, int t) {
      std::vector<double> y;
      for (int p = 0; p < s.columns; ++p) {
        double out = skip.At(0, p) * x.At(t, p);
        for (int i = 0; i < s.keys; ++i) {
          double& at = state[size_t(i * s.columns + p)];
          at = std::exp(dt.At(t, p) * a.At(i, p)) * at + dt.At(t, p) * x.At(t, p) * b.At(t, i);
          out += at * c.At(t, i);
        }
        y.push_back(out);
      }
      return y;
    };
    Check(s, run, step, 2e-5, s.state_floats());
  });
}

TEST_P(ScanKernels, RgLru) {
  for (const int columns : {1, 15, 16, 33, 100}) {
    for (const int rows : kRows) {
      for (const bool reset : {false, true}) {
        const Case s = {1, columns, rows};
        const Operand rate(rng_, 1, columns, 0.1f, 8);
        const Operand x(rng_, rows, columns, -1, 1);
        const Operand r(rng_, rows, columns, -4, 4);
        const Operand in(rng_, rows, columns, -4, 4);
        const RunScan run = [&](const KernelTable& t, float* state, float* y, int begin, int end) {
          const cpu::RgLruScan scan = {state,
                                       columns,
                                       end - begin,
                                       reset && begin == 0,
                                       rate.data.data(),
                                       x.From(begin),
                                       r.From(begin),
                                       in.From(begin),
                                       y,
                                       s.y_stride()};
          t.scan.rg_lru(&scan);
        };
        const Step step = [&](std::vector<double>& state, int t) {
          for (int c = 0; c < columns; ++c) {
            const double l = -rate.At(0, c) / (1 + std::exp(-r.At(t, c)));
            const double gated = x.At(t, c) / (1 + std::exp(-in.At(t, c)));
            double& at = state[size_t(c)];
            at =
                reset && t == 0 ? gated : std::exp(l) * at + gated * std::sqrt(1 - std::exp(2 * l));
          }
          return state;
        };
        Check(s, run, step, 1e-5, s.state_floats());
      }
    }
  }
}

TEST_P(ScanKernels, SsdGates) {
  for (const int64_t n : {1, 15, 16, 17, 80, 128}) {
    const Floats x = Random(rng_, n, -30, 30);
    const Floats bias = Random(rng_, n, -1, 1);
    const Floats a = Random(rng_, n, -8, 0);
    Floats expected(size_t(2 * n + 9), -777.0f);
    Floats got = expected;
    for (const float high : {INFINITY, 2.0f}) {
      reference_.scan.ssd_gates(x.data(), bias.data(), a.data(), 0.001f, high, n, expected.data(),
                                expected.data() + n);
      table_.scan.ssd_gates(x.data(), bias.data(), a.data(), 0.001f, high, n, got.data(),
                            got.data() + n);
      ASSERT_EQ(0, std::memcmp(expected.data(), got.data(), got.size() * 4));
      Floats decay(size_t(n) + 3, -777.0f);
      Floats decay_expected = decay;
      reference_.scan.decay(x.data(), bias.data(), bias.data(), n, decay_expected.data());
      table_.scan.decay(x.data(), bias.data(), bias.data(), n, decay.data());
      ASSERT_EQ(0, std::memcmp(decay_expected.data(), decay.data(), decay.size() * 4));
      for (size_t i = 0; i < size_t(n); ++i) {
        const double sum = double(x[i]) + bias[i];
        const double step = std::max(sum, 0.0) + std::log1p(std::exp(-std::fabs(sum)));
        const double dt = std::min(std::max(step, 0.001), double(high));
        EXPECT_NEAR(got[i], dt, 1e-5);
        EXPECT_NEAR(got[size_t(n) + i], std::exp(dt * a[i]), 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ScanKernels, ::testing::ValuesIn(cpu::AvailableIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace reprise
