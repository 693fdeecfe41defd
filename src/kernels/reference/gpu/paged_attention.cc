// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/paged_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/math.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

uint16_t RoundTo(Half type, float x) { return type == Half::kF16 ? F32ToF16(x) : F32ToBF16(x); }

struct Softmax {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  uint16_t weight[kPage] = {};
};

Softmax SoftmaxOf(const PagedQuery& query, const uint16_t* q, const PageView& page) {
  Softmax result;
  float score[kPage];
  for (int c = page.first; c < page.end; ++c) {
    float s = TensorChain(query.type, q, page.k + c * query.head_dim, query.head_dim) * query.scale;
    if (query.softcap != 0) s = query.softcap * Tanh(s / query.softcap);
    score[c] = s;
    result.max = s > result.max ? s : result.max;
  }
  float lanes[4] = {};
  for (int c = page.first; c < page.end; ++c) {
    const float p = Exp(score[c] - result.max);
    lanes[c % 8 / 2] += p;
    result.weight[c] = RoundTo(query.type, p);
  }
  result.sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  return result;
}

}  // namespace

void AttendPages(const PagedQuery& query, const float* q, std::span<const PageView> pages,
                 float* out) {
  std::vector<uint16_t> rounded(size_t(query.head_dim));
  for (int i = 0; i < query.head_dim; ++i) rounded[size_t(i)] = RoundTo(query.type, q[i]);
  float max = 0;
  float sum = 0;
  bool any = false;
  for (const PageView& page : pages) {
    if (page.first >= page.end) continue;
    const Softmax softmax = SoftmaxOf(query, rounded.data(), page);
    const float together = any && max > softmax.max ? max : softmax.max;
    const float a = any ? Exp(max - together) : 0;
    const float b = any ? Exp(softmax.max - together) : 1;
    for (int v = 0; v < query.value_dim; ++v) {
      uint16_t column[kPage] = {};
      for (int c = page.first; c < page.end; ++c) column[c] = page.v[c * query.v_stride + v];
      const float o = TensorChain(query.type, softmax.weight, column, kPage);
      out[v] = any ? std::fma(out[v], a, o * b) : o;
    }
    sum = any ? std::fma(sum, a, softmax.sum * b) : softmax.sum;
    max = together;
    any = true;
  }
  const float inverse = 1.0f / sum;
  for (int v = 0; v < query.value_dim; ++v) out[v] *= inverse;
}

}  // namespace reprise::reference
