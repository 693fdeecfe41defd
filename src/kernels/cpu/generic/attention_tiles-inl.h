// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/prefetch-inl.h"

// The two products of attention as register tiles: queries times keys, weights times values.
namespace reprise::cpu {
namespace {

// The range of keys that a query sees, and how its block joins its running softmax.
struct QueryPlan {
  int first;
  int visible;
  float a;  // factor of what was there; kStore: nothing was, kSkip: no key is seen
  float b;  // factor of this block
};
constexpr float kStore = -1;
constexpr float kSkip = -2;

// What is asked for while a product is computed: so many bytes with every step, or nothing.
struct AskSteps {
  Asked asked;
  int bytes;
  void Step() { asked.More<128>(bytes); }
};
struct AskNothing {
  void Step() const {}
};

// scores[q][16 * v ...] for kQueries queries and kVectors * 16 keys.
template <int kQueries, int kVectors, typename Element, typename Ask>
inline void ScoreTile(const float* q, int head_dim, const Element* k, float* scores, Ask ask) {
  V16 sum[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    ask.Step();
    V16 key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) key[v] = Load(k + d * kKeys + 16 * v);
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const V16 query = Set(q[i * head_dim + d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = Fma(query, key[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(scores + i * kKeys + 16 * v, sum[i][v]);
  }
}

// Keys [begin, end), whole vectors. The first tile asks.
template <int kQueries, typename Element, typename Ask>
void ScoreQueries(const float* q, int head_dim, const Element* k, int begin, int end, float* scores,
                  Ask ask) {
  int j = begin;
  if (j + 16 * kTileVectors <= end) {
    ScoreTile<kQueries, kTileVectors>(q, head_dim, k + j, scores + j, ask);
    j += 16 * kTileVectors;
  }
  for (; j + 16 * kTileVectors <= end; j += 16 * kTileVectors) {
    ScoreTile<kQueries, kTileVectors>(q, head_dim, k + j, scores + j, AskNothing());
  }
  for (; j < end; j += 16) ScoreTile<kQueries, 1>(q, head_dim, k + j, scores + j, AskNothing());
}

// Adds the product of weight j and row j of V for each query that sees key j.
template <int kQueries, int kVectors, bool kAll, bool kPartial, typename Element>
inline void ValueStep(const QueryPlan* plan, const float* weights, const Element* v, int j,
                      int lanes, V16 (&sum)[kQueries][kVectors]) {
  V16 value[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    if constexpr (kPartial) {
      value[c] = LoadPartial(v + 16 * c, lanes);
    } else {
      value[c] = Load(v + 16 * c);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    if (!kAll && (j < plan[i].first || j >= plan[i].visible)) continue;
    const V16 weight = Set(weights[i * kKeys + j]);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[i][c] = Fma(weight, value[c], sum[i][c]);
  }
}

// kVectors * 16 channels (or `lanes` where kPartial) of kQueries queries: weights times V, merged
// into out.
template <int kQueries, int kVectors, bool kPartial, typename Element, typename Ask>
inline void ValueTile(const QueryPlan* plan, const float* weights, const Element* v, int value_dim,
                      int lanes, float* out, Ask& ask) {
  V16 sum[kQueries][kVectors];
  int all_begin = 0;
  int all_end = kKeys;
  int begin = kKeys;
  int end = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[i][c] = Zero();
    all_begin = plan[i].first > all_begin ? plan[i].first : all_begin;
    all_end = plan[i].visible < all_end ? plan[i].visible : all_end;
    begin = plan[i].first < begin ? plan[i].first : begin;
    end = plan[i].visible > end ? plan[i].visible : end;
  }
  int j = begin;
  for (; j < all_begin && j < end; ++j) {
    ValueStep<kQueries, kVectors, false, kPartial>(plan, weights, v + j * value_dim, j, lanes, sum);
  }
  for (; j < all_end; ++j) {
    ask.Step();
    ValueStep<kQueries, kVectors, true, kPartial>(plan, weights, v + j * value_dim, j, lanes, sum);
  }
  for (; j < end; ++j) {
    ValueStep<kQueries, kVectors, false, kPartial>(plan, weights, v + j * value_dim, j, lanes, sum);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    if (plan[i].a == kSkip) continue;
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* at = out + i * value_dim + 16 * c;
      V16 result = sum[i][c];
      if (plan[i].a != kStore) {
        V16 before;
        if constexpr (kPartial) {
          before = LoadPartial(at, lanes);
        } else {
          before = Load(at);
        }
        result = Fma(before, Set(plan[i].a), Mul(result, Set(plan[i].b)));
      }
      if constexpr (kPartial) {
        StorePartial(at, result, lanes);
      } else {
        Store(at, result);
      }
    }
  }
}

template <int kQueries, typename Element, typename Ask>
void ValueQueries(const QueryPlan* plan, const float* weights, const Element* v, int value_dim,
                  float* out, Ask ask) {
  int c = 0;
  for (; c + 16 * kTileVectors <= value_dim; c += 16 * kTileVectors) {
    ValueTile<kQueries, kTileVectors, false>(plan, weights, v + c, value_dim, 16, out + c, ask);
  }
  for (; c + 16 <= value_dim; c += 16) {
    ValueTile<kQueries, 1, false>(plan, weights, v + c, value_dim, 16, out + c, ask);
  }
  if (c < value_dim) {
    ValueTile<kQueries, 1, true>(plan, weights, v + c, value_dim, value_dim - c, out + c, ask);
  }
}

}  // namespace
}  // namespace reprise::cpu
