// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/gpu/power2.h"
#include "kernels/reference/math.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

uint16_t RoundTo(Half type, float x) { return type == Half::kF16 ? F32ToF16(x) : F32ToBF16(x); }

struct Softmax {
  float top = -std::numeric_limits<float>::infinity();
  float sum = 0;
  uint16_t weight[kPage] = {};
};

Softmax SoftmaxOf(const PagedQuery& query, const uint16_t* q, const PageView& page) {
  Softmax result;
  const float unit = UnitOfScores(query.scale, query.softcap);
  float score[kPage];
  float max = -std::numeric_limits<float>::infinity();
  for (int c = page.first; c < page.end; ++c) {
    float s = TensorChain(query.core, query.type, q, page.k + c * query.head_dim, query.head_dim);
    if (query.softcap != 0) s = query.softcap * Tanh(s * query.scale / query.softcap);
    score[c] = s;
    max = s > max ? s : max;
  }
  result.top = TopOfScores(max, unit);
  uint16_t ones[kPage];
  for (int c = page.first; c < page.end; ++c) {
    const float p = WeightOfScore(score[c], unit, ShiftOfTop(result.top));
    result.weight[c] = RoundTo(query.type, p);
  }
  std::fill(ones, ones + kPage, RoundTo(query.type, 1));
  result.sum = TensorChain(query.core, query.type, result.weight, ones, kPage);
  return result;
}

// Pages that were joined.
struct Joined {
  explicit Joined(int value_dim) : out(size_t(value_dim), 0.0f) {}

  void Join(float next_top, float next_sum, const std::vector<float>& next_out) {
    const bool rises = next_top > top;
    const float factor = Power2OfInteger(rises ? top - next_top : next_top - top);
    const auto join = [&](float before, float next) {
      return rises ? std::fma(before, factor, next) : std::fma(next, factor, before);
    };
    for (size_t v = 0; v < out.size(); ++v) out[v] = join(out[v], next_out[v]);
    sum = join(sum, next_sum);
    top = rises ? next_top : top;
  }

  float top = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::vector<float> out;
};

}  // namespace

void AttendPages(const PagedQuery& query, const float* q, std::span<const PageView> pages,
                 float* out) {
  std::vector<uint16_t> rounded(size_t(query.head_dim));
  for (int i = 0; i < query.head_dim; ++i) rounded[size_t(i)] = RoundTo(query.type, q[i]);
  Joined all(query.value_dim), group(query.value_dim);
  std::vector<float> fresh(size_t(query.value_dim));
  for (size_t i = 0; i < pages.size(); ++i) {
    const PageView& page = pages[i];
    if ((query.first_page + int(i)) % kPagesOfGroup == 0) {
      all.Join(group.top, group.sum, group.out);
      group = Joined(query.value_dim);
    }
    if (page.first >= page.end) continue;
    const Softmax softmax = SoftmaxOf(query, rounded.data(), page);
    for (int v = 0; v < query.value_dim; ++v) {
      uint16_t column[kPage] = {};
      for (int c = page.first; c < page.end; ++c) column[c] = page.v[c * query.v_stride + v];
      fresh[size_t(v)] = TensorChain(query.core, query.type, softmax.weight, column, kPage);
    }
    group.Join(softmax.top, softmax.sum, fresh);
  }
  all.Join(group.top, group.sum, group.out);
  if (query.sink != nullptr) all.sum = SumWithSink(all.sum, *query.sink, all.top);
  const float inverse = 1.0f / all.sum;
  for (int v = 0; v < query.value_dim; ++v) out[v] = all.out[size_t(v)] * inverse + 0.0f;
}

}  // namespace reprise::reference
