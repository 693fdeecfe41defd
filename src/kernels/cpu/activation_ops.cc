// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tasks.h"
#include "kernels/raw_rows.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"

namespace reprise::cpu {

namespace {

// Costs of an element relative to an addition.
constexpr int64_t kNormCost = 2;
constexpr int64_t kExpCost = 4;

// Calls row(t) for every row.
template <typename Row>
void EachRow(ThreadPool& pool, const Rows& y, int64_t cost, const Row& row) {
  ForRows(pool, y.rows, y.cols * cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(t);
  });
}

}  // namespace

void CpuBackend::Mul(const ConstRows& a, const ConstRows& b, const Rows& y) {
  EachRow(*pool_, y, 1,
          [&](int64_t t) { table_->mul(RowOf(a, t), RowOf(b, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::Scale(const ConstRows& x, float factor, const Rows& y) {
  EachRow(*pool_, y, 1,
          [&](int64_t t) { table_->scale(RowOf(x, t), factor, y.cols, RowOf(y, t)); });
}

void CpuBackend::Silu(const ConstRows& x, const Rows& y) {
  EachRow(*pool_, y, kExpCost, [&](int64_t t) { table_->silu(RowOf(x, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::Gelu(const ConstRows& x, const Rows& y) {
  EachRow(*pool_, y, kExpCost, [&](int64_t t) { table_->gelu(RowOf(x, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::GeluErf(const ConstRows& x, const Rows& y) {
  EachRow(*pool_, y, kExpCost,
          [&](int64_t t) { table_->gelu_erf(RowOf(x, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::Clamp(const ConstRows& x, float least, float most, const Rows& y) {
  EachRow(*pool_, y, 1, [&](int64_t t) {
    const float* in = RowOf(x, t);
    float* out = RowOf(y, t);
    for (int64_t i = 0; i < y.cols; ++i) {
      const float value = in[i] < least ? least : in[i];
      out[i] = value > most ? most : value;
    }
  });
}

void CpuBackend::GeGlu(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  EachRow(*pool_, y, kExpCost,
          [&](int64_t t) { table_->geglu(RowOf(gate, t), RowOf(up, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::GeGluErf(const ConstRows& gate, const ConstRows& up, const Rows& y) {
  EachRow(*pool_, y, kExpCost, [&](int64_t t) {
    table_->gelu_erf(RowOf(gate, t), y.cols, RowOf(y, t));
    table_->mul(RowOf(y, t), RowOf(up, t), y.cols, RowOf(y, t));
  });
}

void CpuBackend::ReluSquared(const ConstRows& x, const Rows& y) {
  EachRow(*pool_, y, 1, [&](int64_t t) { table_->relu_squared(RowOf(x, t), y.cols, RowOf(y, t)); });
}

void CpuBackend::Softcap(const ConstRows& x, float cap, const Rows& y) {
  EachRow(*pool_, y, kExpCost,
          [&](int64_t t) { table_->softcap(RowOf(x, t), cap, y.cols, RowOf(y, t)); });
}

void CpuBackend::Sigmoid(const ConstRows& x, ConstFloats bias, const Rows& y) {
  EachRow(*pool_, y, kExpCost,
          [&](int64_t t) { table_->sigmoid(RowOf(x, t), Raw(bias), y.cols, RowOf(y, t)); });
}

void CpuBackend::ClampedSwiGlu(const ConstRows& gate, const ConstRows& up, float alpha, float limit,
                               const Rows& y) {
  EachRow(*pool_, y, kExpCost, [&](int64_t t) {
    table_->clamped_swiglu(RowOf(gate, t), RowOf(up, t), alpha, limit, y.cols, RowOf(y, t));
  });
}

void CpuBackend::Softplus(const ConstRows& x, ConstFloats bias, const Rows& y) {
  EachRow(*pool_, y, kExpCost,
          [&](int64_t t) { table_->softplus(RowOf(x, t), Raw(bias), y.cols, RowOf(y, t)); });
}

void CpuBackend::Lerp(const ConstRows& a, const ConstRows& b, const ConstRows& t, const Rows& y) {
  EachRow(*pool_, y, 1, [&](int64_t row) {
    table_->lerp(RowOf(a, row), RowOf(b, row), RowOf(t, row), y.cols, RowOf(y, row));
  });
}

void CpuBackend::LayerNorm(const ConstRows& x, ConstFloats weight, ConstFloats bias, int groups,
                           float eps, const Rows& y) {
  const int64_t width = x.cols / groups;
  EachRow(*pool_, y, 2 * kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < x.cols; at += width) {
      table_->layer_norm(RowOf(x, t) + at, Raw(weight + at), bias ? Raw(bias + at) : nullptr, eps,
                         width, RowOf(y, t) + at);
    }
  });
}

void CpuBackend::GroupRmsNorm(const ConstRows& x, ConstFloats weight, int groups, float eps,
                              const Rows& y) {
  const int64_t width = x.cols / groups;
  EachRow(*pool_, y, kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < x.cols; at += width) {
      table_->rms_norm(RowOf(x, t) + at, Raw(weight + at), eps, width, RowOf(y, t) + at);
    }
  });
}

void CpuBackend::GateRmsNorm(const ConstRows& x, const ConstRows& gate, ConstFloats weight,
                             int groups, float eps, const Rows& y) {
  const int64_t width = x.cols / groups;
  EachRow(*pool_, y, kNormCost + kExpCost, [&](int64_t t) {
    table_->swiglu(RowOf(gate, t), RowOf(x, t), x.cols, RowOf(y, t));
    for (int64_t at = 0; at < x.cols; at += width) {
      table_->rms_norm(RowOf(y, t) + at, Raw(weight + at), eps, width, RowOf(y, t) + at);
    }
  });
}

void CpuBackend::MatchMagnitude(const ConstRows& x, const ConstRows& like, float least,
                                const Rows& y) {
  EachRow(*pool_, y, 2 * kNormCost, [&](int64_t t) {
    reference::MatchMagnitude(RowOf(x, t), RowOf(like, t), least, y.cols, RowOf(y, t));
  });
}

void CpuBackend::CutBelow(const ConstRows& x, float factor, const Rows& y) {
  EachRow(*pool_, y, 2 * kNormCost,
          [&](int64_t t) { reference::CutBelow(RowOf(x, t), factor, y.cols, RowOf(y, t)); });
}

void CpuBackend::ScaleByPosition(const StepLayout& step, ConstFloats factors, int period,
                                 const ConstRows& x, const Rows& y) {
  EachRow(*pool_, y, 1, [&](int64_t t) {
    const float factor = Raw(factors)[step.host.positions[size_t(t)] / period];
    table_->scale(RowOf(x, t), factor, y.cols, RowOf(y, t));
  });
}

void CpuBackend::MixStreams(const ConstRows& x, const ConstRows& factors, int streams,
                            const Rows& y) {
  EachRow(*pool_, y, streams, [&](int64_t t) {
    reference::MixStreams(RowOf(x, t), RowOf(factors, t), streams, y.cols / streams, RowOf(y, t));
  });
}

void CpuBackend::AddToStreams(const ConstRows& x, const ConstRows& factors, const Rows& y) {
  EachRow(*pool_, y, 1, [&](int64_t t) {
    reference::AddToStreams(RowOf(x, t), RowOf(factors, t), int(factors.cols), x.cols, RowOf(y, t));
  });
}

void CpuBackend::RwkvDecay(const ConstRows& x, ConstFloats bias, const Rows& y) {
  EachRow(*pool_, y, 2 * kExpCost,
          [&](int64_t t) { table_->rwkv_decay(RowOf(x, t), Raw(bias), y.cols, RowOf(y, t)); });
}

void CpuBackend::RwkvBonus(const ConstRows& r, const ConstRows& k, ConstFloats weight,
                           const ConstRows& v, int heads, const Rows& y) {
  const int64_t width = y.cols / heads;
  EachRow(*pool_, y, kNormCost, [&](int64_t t) {
    for (int64_t at = 0; at < y.cols; at += width) {
      table_->dot_scale_add(RowOf(r, t) + at, RowOf(k, t) + at, Raw(weight + at), RowOf(v, t) + at,
                            width, RowOf(y, t) + at);
    }
  });
}

}  // namespace reprise::cpu
