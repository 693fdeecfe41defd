// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/ops.h"

// Ops whose rows need nothing but themselves: rows are divided among the threads.
namespace reprise {

namespace {

// Costs of an element relative to an addition.
constexpr int64_t kNormCost = 2;
constexpr int64_t kExpCost = 4;

bool SameShape(const Rows& a, const Rows& b) { return a.rows == b.rows && a.cols == b.cols; }

}  // namespace

void RmsNorm(const OpContext& context, const Rows& x, const float* weight, int groups, float eps,
             const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  const int64_t width = x.cols / groups;
  cpu::ForRows(context, x.rows, x.cols * kNormCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        context.table->rms_norm(x.row(t) + g * width, weight, eps, width, y.row(t) + g * width);
      }
    }
  });
}

void RmsNormGated(const OpContext& context, const Rows& x, const Rows& gate, const float* weight,
                  int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(x, gate) && groups > 0 && x.cols % groups == 0);
  CHECK(gate.data != y.data);
  const int64_t width = x.cols / groups;
  cpu::ForRows(context, x.rows, x.cols * (kNormCost + kExpCost), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        context.table->rms_norm(x.row(t) + g * width, weight, eps, width, y.row(t) + g * width);
      }
      context.table->swiglu(gate.row(t), y.row(t), x.cols, y.row(t));
    }
  });
}

void L2Norm(const OpContext& context, const Rows& x, int groups, float eps, float scale,
            const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  const int64_t width = x.cols / groups;
  cpu::ForRows(context, x.rows, x.cols * kNormCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        context.table->l2_norm(x.row(t) + g * width, eps, scale, width, y.row(t) + g * width);
      }
    }
  });
}

void SwiGlu(const OpContext& context, const Rows& gate, const Rows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y));
  cpu::ForRows(context, y.rows, y.cols * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->swiglu(gate.row(t), up.row(t), y.cols, y.row(t));
    }
  });
}

void SigmoidMul(const OpContext& context, const Rows& gate, const Rows& x, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(x, y));
  cpu::ForRows(context, y.rows, y.cols * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->sigmoid_mul(gate.row(t), x.row(t), y.cols, y.row(t));
    }
  });
}

void Add(const OpContext& context, const Rows& a, const Rows& b, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y));
  cpu::ForRows(context, y.rows, y.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->add(a.row(t), b.row(t), y.cols, y.row(t));
    }
  });
}

RopeTable MakeRopeTable(const OpContext& context, std::span<const int32_t> positions,
                        std::span<const float> inverse_frequencies, float magnitude) {
  constexpr int64_t kSinCosCost = 32;
  const int half = static_cast<int>(inverse_frequencies.size());
  const int64_t rows = static_cast<int64_t>(positions.size());
  float* cos = context.scratch->Floats(static_cast<size_t>(rows * half));
  float* sin = context.scratch->Floats(static_cast<size_t>(rows * half));
  cpu::ForRows(context, rows, half * kSinCosCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->rope_angles(static_cast<float>(positions[size_t(t)]),
                                 inverse_frequencies.data(), half, cos + t * half, sin + t * half);
      if (magnitude == 1) continue;
      context.table->scale(cos + t * half, magnitude, half, cos + t * half);
      context.table->scale(sin + t * half, magnitude, half, sin + t * half);
    }
  });
  return {cos, sin, half};
}

void Rope(const OpContext& context, const RopeTable& table, int heads, const Rows& x) {
  CHECK(heads > 0 && x.cols % heads == 0 && 2 * table.half <= x.cols / heads);
  const int64_t head_dim = x.cols / heads;
  cpu::ForRows(context, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        context.table->rope(x.row(t) + h * head_dim, table.cos + t * table.half,
                            table.sin + t * table.half, table.half);
      }
    }
  });
}

void GatedDeltaGates(const OpContext& context, const Rows& a, const Rows& b, const float* exp_a,
                     const float* dt_bias, const Rows& decay, const Rows& beta) {
  CHECK(SameShape(a, b) && SameShape(a, decay) && SameShape(a, beta));
  cpu::ForRows(context, a.rows, a.cols * 3 * kExpCost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      context.table->delta_gates(a.row(t), b.row(t), exp_a, dt_bias, a.cols, decay.row(t),
                                 beta.row(t));
    }
  });
}

bool AllFinite(std::span<const float> values) {
  // x * 0 is NaN for infinities and NaN; the sum keeps it. Sixteen sums so that the compiler can
  // use vectors without changing an order.
  float sum[16] = {};
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) sum[lane] += values[i + lane] * 0.0f;
  }
  float total = 0;
  for (; i < values.size(); ++i) total += values[i] * 0.0f;
  for (const float s : sum) total += s;
  return total == 0;
}

int64_t ArgMax(std::span<const float> values) {
  if (values.empty() || !AllFinite(values)) return -1;
  // The largest value first (its position does not matter), then its first occurrence.
  float best[16];
  for (float& b : best) b = values[0];
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) {
      best[lane] = values[i + lane] > best[lane] ? values[i + lane] : best[lane];
    }
  }
  float largest = best[0];
  for (const float b : best) largest = b > largest ? b : largest;
  for (; i < values.size(); ++i) largest = values[i] > largest ? values[i] : largest;
  for (i = 0; values[i] != largest; ++i) {
  }
  return static_cast<int64_t>(i);
}

}  // namespace reprise
