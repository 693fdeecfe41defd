// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/attention_tiles-inl.h"
#include "kernels/cpu/generic/kv_q8-inl.h"
#include "kernels/cpu/generic/kv_store-inl.h"
#include "kernels/cpu/generic/math-inl.h"
#include "kernels/cpu/generic/rows-inl.h"

// Attention of a tile of queries over one block: attend_* of KernelTable. Three passes, so that K,
// then V, stays in the first-level cache while all queries use it: scores, softmax, values.
namespace reprise::cpu {
namespace {

// Scores of one query become weights, in place; returns their maximum and sum. Vectors that the
// query does not see at all are neither read nor written.
inline void SoftmaxQuery(float* scores, int first, int visible, float softcap, float* max,
                         float* sum) {
  const V16 lowest = Set(-__builtin_inff());
  V16 most = lowest;
  for (int j = first & ~15; j < visible; j += 16) {
    V16 score = Load(scores + j);
    if (softcap != 0) score = Mul(Set(softcap), Tanh(Div(score, Set(softcap))));
    score = Select(Lanes(first > j ? first - j : 0, visible - j < 16 ? visible - j : 16), score,
                   lowest);
    Store(scores + j, score);
    most = Max(score, most);
  }
  *max = MaxLanes(most);
  const V16 maximum = Set(*max);
  V16 total = Zero();
  for (int j = first & ~15; j < visible; j += 16) {
    // Unseen keys weigh exp(-inf) = 0, or NaN where all seen scores are -inf and their sum is NaN.
    const V16 weight = ExpBounded(Sub(Load(scores + j), maximum));
    Store(scores + j, weight);
    total = Add(total, weight);
  }
  *sum = SumLanes(total);
}

// The same where the query sees all keys and there is no softcap: the common case.
inline void SoftmaxAll(float* scores, float* max, float* sum) {
  constexpr int kCount = kKeys / 16;
  V16 score[kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) score[i] = Load(scores + 16 * i);
  V16 most = Set(-__builtin_inff());
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) most = Max(score[i], most);
  *max = MaxLanes(most);
  const V16 maximum = Set(*max);
  V16 total = Zero();
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    score[i] = ExpBounded(Sub(score[i], maximum));
    Store(scores + 16 * i, score[i]);
    total = Add(total, score[i]);
  }
  *sum = SumLanes(total);
}

// Merges maxima and sums of all queries and leaves the factors for the values in `plan`.
inline void MergeSums(const float* block_max, const float* block_sum, int queries, float* max,
                      float* sum, QueryPlan* plan) {
  for (int i = 0; i < queries; i += 16) {
    const int n = queries - i < 16 ? queries - i : 16;
    const V16 old_max = LoadPartial(max + i, n);
    const V16 old_sum = LoadPartial(sum + i, n);
    const V16 new_max = LoadPartial(block_max + i, n);
    const V16 together = Max(new_max, old_max);
    const V16 a = Exp(Sub(old_max, together));
    const V16 b = Exp(Sub(new_max, together));
    const V16 new_sum = LoadPartial(block_sum + i, n);
    const V16 merged = Fma(old_sum, a, Mul(new_sum, b));
    float factor_a[16];
    float factor_b[16];
    float merged_sum[16];
    float merged_max[16];
    Store(factor_a, a);
    Store(factor_b, b);
    Store(merged_sum, merged);
    Store(merged_max, together);
    for (int lane = 0; lane < n; ++lane) {
      QueryPlan& p = plan[i + lane];
      const bool store = sum[i + lane] == 0 && max[i + lane] == -__builtin_inff();
      if (p.a == kSkip) continue;
      p.a = store ? kStore : factor_a[lane];
      p.b = factor_b[lane];
      max[i + lane] = store ? block_max[i + lane] : merged_max[lane];
      sum[i + lane] = store ? block_sum[i + lane] : merged_sum[lane];
    }
  }
}

template <int kCount>
struct Count {
  static constexpr int value = kCount;
};
// Calls f(Count<n>) for n in [1, kMost].
template <int kMost = kTileQueries, typename F>
inline void WithCount(int n, F f) {
  if constexpr (kMost > 1) {
    if (n < kMost) return WithCount<kMost - 1>(n, f);
  }
  f(Count<kMost>());
}

// Scores of all queries of the tile: [queries, kKeys], of whole vectors around what they see. The
// first queries ask.
template <typename Key, typename Ask>
void ScoreElements(const AttentionTile& tile, const Key* k, float* scores, Ask ask) {
  for (int i = 0; i < tile.queries; i += kTileQueries) {
    const int n = tile.queries - i < kTileQueries ? tile.queries - i : kTileQueries;
    int begin = kKeys;
    int end = 0;
    for (int query = i; query < i + n; ++query) {
      begin = tile.first[query] < begin ? tile.first[query] : begin;
      end = tile.visible[query] > end ? tile.visible[query] : end;
    }
    WithCount(n, [&](auto count) {
      const auto score = [&](auto asks) {
        ScoreQueries<decltype(count)::value>(tile.q + int64_t{i} * tile.head_dim, tile.head_dim, k,
                                             begin & ~15, (end + 15) & ~15, scores + i * kKeys,
                                             asks);
      };
      i == 0 ? score(ask) : score(AskNothing());
    });
  }
}

// What a block asks for, where it is used as it lies: its values while its keys are used, and then
// the keys of the next one. Memory would have rests between them otherwise.
struct AskAhead {
  explicit AskAhead(const AttentionTile& tile, int element_bytes) {
    const int key_bytes = kKeys * tile.head_dim * element_bytes;
    const int value_bytes = kKeys * tile.value_dim * element_bytes;
    const int tiles = (tile.value_dim + 16 * kTileVectors - 1) / (16 * kTileVectors);
    values = {Place(tile.v), tile.v != nullptr ? value_bytes / tile.head_dim : 0};
    keys = {Place(tile.next_k), tile.next_k != nullptr ? key_bytes / (tiles * kKeys) : 0};
  }
  static Asked Place(const void* p) { return Asked(reinterpret_cast<uintptr_t>(p)); }

  AskSteps values{Asked(0), 0};
  AskSteps keys{Asked(0), 0};
};
struct AskForNothing {
  AskNothing values, keys;
};

template <typename Key, typename Value, typename Ask = AskForNothing>
void AttendElements(const AttentionTile& tile, const Key* k, const Value* v,
                    const AttentionState& state, float* scratch, const Ask& ask = Ask()) {
  float* const scores = scratch;
  float* const block_max = scores + kKeys * tile.queries;
  float* const block_sum = block_max + tile.queries;
  QueryPlan* const plan = reinterpret_cast<QueryPlan*>(block_sum + tile.queries);
  ScoreElements(tile, k, scores, ask.values);
  for (int i = 0; i < tile.queries; ++i) {
    const bool sees = tile.first[i] < tile.visible[i];
    plan[i] = {tile.first[i], tile.visible[i], sees ? kStore : kSkip, 0};
    block_max[i] = 0;
    block_sum[i] = 0;
    if (!sees) continue;
    if (tile.first[i] == 0 && tile.visible[i] == kKeys && tile.softcap == 0) {
      SoftmaxAll(scores + i * kKeys, &block_max[i], &block_sum[i]);
    } else {
      SoftmaxQuery(scores + i * kKeys, tile.first[i], tile.visible[i], tile.softcap, &block_max[i],
                   &block_sum[i]);
    }
  }
  MergeSums(block_max, block_sum, tile.queries, state.max, state.sum, plan);
  for (int i = 0; i < tile.queries; i += kTileQueries) {
    const int n = tile.queries - i < kTileQueries ? tile.queries - i : kTileQueries;
    WithCount(n, [&](auto count) {
      const auto weigh = [&](auto asks) {
        ValueQueries<decltype(count)::value>(plan + i, scores + i * kKeys, v, tile.value_dim,
                                             state.out + int64_t{i} * tile.value_dim, asks);
      };
      i == 0 ? weigh(ask.keys) : weigh(AskNothing());
    });
  }
}

void AttendF32(const AttentionTile* tile, const AttentionState* state, float* scratch) {
  const float* const k = static_cast<const float*>(tile->k);
  const float* v = static_cast<const float*>(tile->v);
  float* const wide_v = scratch;
  if (v == nullptr) {
    ValuesFromKeys(k, tile->value_dim, wide_v);
    v = wide_v;
  }
  AttendElements(*tile, k, v, *state, wide_v + kKeys * tile->value_dim);
}

// Keys that a query of the tile sees: [begin, end), or none.
struct KeyRange {
  int begin = kKeys;
  int end = 0;
};
inline KeyRange SeenBy(const AttentionTile& tile) {
  KeyRange seen;
  for (int i = 0; i < tile.queries; ++i) {
    seen.begin = tile.first[i] < seen.begin ? tile.first[i] : seen.begin;
    seen.end = tile.visible[i] > seen.end ? tile.visible[i] : seen.end;
  }
  return seen;
}

// `widen` makes f32 of elements.
template <typename Element, typename Widen>
void AttendHalf(const AttentionTile* tile, const AttentionState* state, float* scratch,
                const Widen& widen) {
  const Element* const k = static_cast<const Element*>(tile->k);
  const Element* const v = static_cast<const Element*>(tile->v);
  float* const wide_k = scratch;
  float* const wide_v = wide_k + kKeys * tile->head_dim;
  float* const rest = wide_v + kKeys * tile->value_dim;
  // Few queries convert as they read; many share one conversion.
  const bool few = tile->queries <= 2 * kTileQueries;
  if (few && v != nullptr) {
    return AttendElements(*tile, k, v, *state, rest, AskAhead(*tile, sizeof(Element)));
  }
  const auto [begin, end] = SeenBy(*tile);
  if (begin >= end) return;
  if (v == nullptr) {
    ValuesFromKeys(k, tile->value_dim, wide_v);
  } else {
    widen(v + begin * tile->value_dim, int64_t{end - begin} * tile->value_dim,
          wide_v + begin * tile->value_dim);
  }
  if (few) return AttendElements(*tile, k, wide_v, *state, rest);
  widen(k, int64_t{kKeys} * tile->head_dim, wide_k);
  AttendElements(*tile, wide_k, wide_v, *state, rest);
}

void AttendF16(const AttentionTile* tile, const AttentionState* state, float* scratch) {
  AttendHalf<uint16_t>(tile, state, scratch, F16ToF32);
}

void AttendBF16(const AttentionTile* tile, const AttentionState* state, float* scratch) {
  AttendHalf<BF16>(tile, state, scratch, [](const BF16* x, int64_t n, float* y) {
    BF16ToF32(reinterpret_cast<const uint16_t*>(x), n, y);
  });
}

// All are converted: an element of q8_0 takes more than a load, and every query would pay for it.
void AttendQ8(const AttentionTile* tile, const AttentionState* state, float* scratch) {
  float* const wide_k = scratch;
  float* const wide_v = wide_k + kKeys * tile->head_dim;
  const KeyRange seen = SeenBy(*tile);
  if (seen.begin >= seen.end) return;
  WidenKeysQ8(tile->k, tile->head_dim, seen.begin & ~15, (seen.end + 15) & ~15, wide_k);
  if (tile->v == nullptr) {
    ValuesFromKeys(wide_k, tile->value_dim, wide_v);
  } else {
    WidenValuesQ8(tile->v, tile->value_dim, seen.begin, seen.end, wide_v);
  }
  AttendElements(*tile, wide_k, wide_v, *state, wide_v + kKeys * tile->value_dim);
}

void F32ToBF16(const float* x, int64_t n, uint16_t* y) {
  Map(x, n, reinterpret_cast<BF16*>(y), [](V16 a) { return a; });
}

void AttendMerge(const AttentionState* state, const AttentionState* block, int queries,
                 int value_dim) {
  for (int query = 0; query < queries; ++query) {
    if (block->sum[query] == 0) continue;
    QueryPlan plan = {0, kKeys, kStore, 0};
    MergeSums(&block->max[query], &block->sum[query], 1, &state->max[query], &state->sum[query],
              &plan);
    float* out = state->out + int64_t{query} * value_dim;
    const float* add = block->out + int64_t{query} * value_dim;
    for (int c = 0; c < value_dim; c += 16) {
      const int n = value_dim - c < 16 ? value_dim - c : 16;
      V16 result = LoadPartial(add + c, n);
      if (plan.a != kStore) {
        result = Fma(LoadPartial(out + c, n), Set(plan.a), Mul(result, Set(plan.b)));
      }
      StorePartial(out + c, result, n);
    }
  }
}

void OverlayAttention(KernelTable* table) {
  table->attend_f32 = AttendF32;
  table->attend_f16 = AttendF16;
  table->attend_bf16 = AttendBF16;
  table->attend_q8_0 = AttendQ8;
  table->f32_to_bf16 = F32ToBF16;
  table->attend_merge = AttendMerge;
  table->store_keys_f32 = StoreKeysF32;
  table->store_keys_f16 = StoreKeysF16;
  table->store_keys_bf16 = StoreKeysBF16;
  table->store_keys_q8_0 = StoreKeysQ8;
  table->store_values_q8_0 = StoreValuesQ8;
}

}  // namespace
}  // namespace reprise::cpu
