// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_ops.h"

#include "base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"

namespace reprise {

namespace {

// Costs of an element relative to an addition.
constexpr int64_t kNormCost = 2;
constexpr int64_t kExpCost = 4;

bool SameShape(const Rows& a, const Rows& b) { return a.rows == b.rows && a.cols == b.cols; }

// Calls row(t) for every row.
template <typename Row>
void EachRow(const OpContext& context, const Rows& y, int64_t cost, const Row& row) {
  cpu::ForRows(context, y.rows, y.cols * cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(t);
  });
}

}  // namespace

void Mul(const OpContext& context, const Rows& a, const Rows& b, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y));
  EachRow(context, y, 1,
          [&](int64_t t) { context.table->mul(a.row(t), b.row(t), y.cols, y.row(t)); });
}

void Scale(const OpContext& context, const Rows& x, float factor, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, 1,
          [&](int64_t t) { context.table->scale(x.row(t), factor, y.cols, y.row(t)); });
}

void Silu(const OpContext& context, const Rows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->silu(x.row(t), y.cols, y.row(t)); });
}

void Gelu(const OpContext& context, const Rows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->gelu(x.row(t), y.cols, y.row(t)); });
}

void GeGlu(const OpContext& context, const Rows& gate, const Rows& up, const Rows& y) {
  CHECK(SameShape(gate, y) && SameShape(up, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->geglu(gate.row(t), up.row(t), y.cols, y.row(t)); });
}

void ReluSquared(const OpContext& context, const Rows& x, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, 1,
          [&](int64_t t) { context.table->relu_squared(x.row(t), y.cols, y.row(t)); });
}

void Softcap(const OpContext& context, const Rows& x, float cap, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->softcap(x.row(t), cap, y.cols, y.row(t)); });
}

void Sigmoid(const OpContext& context, const Rows& x, const float* bias, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->sigmoid(x.row(t), bias, y.cols, y.row(t)); });
}

void Softplus(const OpContext& context, const Rows& x, const float* bias, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, kExpCost,
          [&](int64_t t) { context.table->softplus(x.row(t), bias, y.cols, y.row(t)); });
}

void Lerp(const OpContext& context, const Rows& a, const Rows& b, const Rows& t, const Rows& y) {
  CHECK(SameShape(a, y) && SameShape(b, y) && SameShape(t, y));
  EachRow(context, y, 1, [&](int64_t row) {
    context.table->lerp(a.row(row), b.row(row), t.row(row), y.cols, y.row(row));
  });
}

void LayerNorm(const OpContext& context, const Rows& x, const float* weight, const float* bias,
               int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  const int64_t width = x.cols / groups;
  EachRow(context, y, 2 * kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < x.cols; at += width) {
      context.table->layer_norm(x.row(t) + at, weight + at, bias != nullptr ? bias + at : nullptr,
                                eps, width, y.row(t) + at);
    }
  });
}

void GroupRmsNorm(const OpContext& context, const Rows& x, const float* weight, int groups,
                  float eps, const Rows& y) {
  CHECK(SameShape(x, y) && groups > 0 && x.cols % groups == 0);
  const int64_t width = x.cols / groups;
  EachRow(context, y, kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < x.cols; at += width) {
      context.table->rms_norm(x.row(t) + at, weight + at, eps, width, y.row(t) + at);
    }
  });
}

void GateRmsNorm(const OpContext& context, const Rows& x, const Rows& gate, const float* weight,
                 int groups, float eps, const Rows& y) {
  CHECK(SameShape(x, y) && SameShape(gate, y) && groups > 0 && x.cols % groups == 0);
  CHECK(gate.data != y.data);
  const int64_t width = x.cols / groups;
  EachRow(context, y, kNormCost + kExpCost, [&](int64_t t) {
    context.table->swiglu(gate.row(t), x.row(t), x.cols, y.row(t));
    for (int64_t at = 0; at < x.cols; at += width) {
      context.table->rms_norm(y.row(t) + at, weight + at, eps, width, y.row(t) + at);
    }
  });
}

void RwkvDecay(const OpContext& context, const Rows& x, const float* bias, const Rows& y) {
  CHECK(SameShape(x, y));
  EachRow(context, y, 2 * kExpCost,
          [&](int64_t t) { context.table->rwkv_decay(x.row(t), bias, y.cols, y.row(t)); });
}

void RwkvBonus(const OpContext& context, const Rows& r, const Rows& k, const float* weight,
               const Rows& v, int heads, const Rows& y) {
  CHECK(SameShape(r, y) && SameShape(k, y) && SameShape(v, y) && heads > 0 && y.cols % heads == 0);
  const int64_t width = y.cols / heads;
  EachRow(context, y, kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < y.cols; at += width) {
      context.table->dot_scale_add(r.row(t) + at, k.row(t) + at, weight + at, v.row(t) + at, width,
                                   y.row(t) + at);
    }
  });
}

}  // namespace reprise
