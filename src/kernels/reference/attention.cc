// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/attention.h"

#include <cmath>
#include <limits>

#include "kernels/reference/lanes.h"
#include "kernels/reference/math.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"

namespace reprise::reference {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The softmax of one query over one block, not divided by its sum.
struct BlockSoftmax {
  float max = kMinusInfinity;
  float weight[cpu::kKeys];  // p_j
  float sum = 0;
};

float Score(const cpu::AttentionTile& tile, int query, const float* k, int j) {
  const float* q = tile.q + int64_t{query} * tile.head_dim;
  float s = 0;
  for (int i = 0; i < tile.head_dim; ++i) s = std::fma(q[i], k[i * cpu::kKeys + j], s);
  return tile.softcap != 0 ? tile.softcap * Tanh(s / tile.softcap) : s;
}

BlockSoftmax Softmax(const cpu::AttentionTile& tile, int query, const float* k) {
  BlockSoftmax result;
  float score[cpu::kKeys];
  for (int j = tile.first[query]; j < tile.visible[query]; ++j) {
    const float s = Score(tile, query, k, j);
    score[j] = s;
    result.max = s > result.max ? s : result.max;
  }
  Lanes lanes;
  for (int j = tile.first[query]; j < tile.visible[query]; ++j) {
    result.weight[j] = Exp(score[j] - result.max);
    lanes.lane[j % 16] += result.weight[j];
  }
  result.sum = lanes.Sum();
  return result;
}

// Merges a block's maximum and sum into the query's; what remains is to join the outputs.
struct Join {
  bool store;  // the first block of the query
  float a;
  float b;

  float operator()(float before, float block) const {
    return store ? block : std::fma(before, a, block * b);
  }
};

Join MergeSums(float* max, float* sum, float block_max, float block_sum) {
  if (*sum == 0 && *max == kMinusInfinity) {
    *max = block_max;
    *sum = block_sum;
    return {true, 0, 0};
  }
  const float together = block_max > *max ? block_max : *max;
  const Join join = {false, Exp(*max - together), Exp(block_max - together)};
  *max = together;
  *sum = std::fma(*sum, join.a, block_sum * join.b);
  return join;
}

// v[j][c] at v[j * key_step + c * channel_step].
struct Values {
  const float* data;
  int key_step;
  int channel_step;
};

void Attend(const cpu::AttentionTile& tile, const float* k, const Values& v,
            const cpu::AttentionState& state) {
  for (int query = 0; query < tile.queries; ++query) {
    if (tile.first[query] >= tile.visible[query]) continue;
    const BlockSoftmax softmax = Softmax(tile, query, k);
    const Join join = MergeSums(&state.max[query], &state.sum[query], softmax.max, softmax.sum);
    float* out = state.out + int64_t{query} * tile.value_dim;
    for (int c = 0; c < tile.value_dim; ++c) {
      float o = 0;
      for (int j = tile.first[query]; j < tile.visible[query]; ++j) {
        o = std::fma(softmax.weight[j], v.data[j * v.key_step + c * v.channel_step], o);
      }
      out[c] = join(out[c], o);
    }
  }
}

void WeighKeys(const cpu::AttentionTile& tile, const float* k, const cpu::AttentionState& state,
               float* weights) {
  for (int query = 0; query < tile.queries; ++query) {
    const float share = 1.0f / state.sum[query];
    for (int j = tile.first[query]; j < tile.visible[query]; ++j) {
      weights[j] = weights[j] + Exp(Score(tile, query, k, j) - state.max[query]) * share;
    }
  }
}

void WeighHalf(const cpu::AttentionTile& tile, const cpu::AttentionState& state, float* weights,
               float* scratch, float (*widen)(uint16_t)) {
  for (int i = 0; i < cpu::kKeys * tile.head_dim; ++i) {
    scratch[i] = widen(static_cast<const uint16_t*>(tile.k)[i]);
  }
  WeighKeys(tile, scratch, state, weights);
}

// 16-bit K and V as f32, exactly; `scratch` as in KernelTable.
void AttendHalf(const cpu::AttentionTile& tile, const cpu::AttentionState& state, float* scratch,
                float (*widen)(uint16_t)) {
  float* k = scratch;
  float* v = k + cpu::kKeys * tile.head_dim;
  for (int i = 0; i < cpu::kKeys * tile.head_dim; ++i) {
    k[i] = widen(static_cast<const uint16_t*>(tile.k)[i]);
  }
  if (tile.v == nullptr) return Attend(tile, k, {k, 1, cpu::kKeys}, state);
  for (int i = 0; i < cpu::kKeys * tile.value_dim; ++i) {
    v[i] = widen(static_cast<const uint16_t*>(tile.v)[i]);
  }
  Attend(tile, k, {v, tile.value_dim, 1}, state);
}

// Elements of a block of q8_0 whose codes lie at `row_step` and `channel_step`, its scales likewise
// with groups in place of channels.
struct StepsOfQ8 {
  int row_step;
  int channel_step;
  int group_row_step;
  int group_step;
};
StepsOfQ8 KeySteps() { return {1, cpu::kKeys, 1, cpu::kKeys}; }
StepsOfQ8 ValueSteps(int value_dim) { return {value_dim, 1, int(KvGroups(value_dim)), 1}; }

void WidenQ8(const void* block, int channels, const StepsOfQ8& steps, float* wide) {
  const int8_t* codes = static_cast<const int8_t*>(block);
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(codes + cpu::kKeys * channels);
  for (int row = 0; row < cpu::kKeys; ++row) {
    for (int c = 0; c < channels; ++c) {
      const int at = row * steps.row_step + c * steps.channel_step;
      const uint16_t scale =
          scales[row * steps.group_row_step + c / cpu::kGroup * steps.group_step];
      wide[at] = ElementOfQ8(scale, codes[at]);
    }
  }
}

void StoreQ8(const float* x, int64_t x_stride, int tokens, int channels, int slot,
             const StepsOfQ8& steps, void* block) {
  int8_t* codes = static_cast<int8_t*>(block);
  uint16_t* scales = reinterpret_cast<uint16_t*>(codes + cpu::kKeys * channels);
  for (int t = 0; t < tokens; ++t) {
    const int row = slot + t;
    for (int begin = 0; begin < channels; begin += cpu::kGroup) {
      const int n = channels - begin < cpu::kGroup ? channels - begin : cpu::kGroup;
      const float* from = x + t * x_stride + begin;
      const uint16_t scale = ScaleOfQ8(from, n);
      scales[row * steps.group_row_step + begin / cpu::kGroup * steps.group_step] = scale;
      for (int i = 0; i < n; ++i) {
        codes[row * steps.row_step + (begin + i) * steps.channel_step] = CodeOfQ8(scale, from[i]);
      }
    }
  }
}

}  // namespace

void AttendF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float*) {
  const float* k = static_cast<const float*>(tile->k);
  const float* v = static_cast<const float*>(tile->v);
  Attend(*tile, k, v != nullptr ? Values{v, tile->value_dim, 1} : Values{k, 1, cpu::kKeys}, *state);
}

void AttendF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch) {
  AttendHalf(*tile, *state, scratch, F16ToF32);
}

void AttendBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch) {
  AttendHalf(*tile, *state, scratch, BF16ToF32);
}

void AttendQ8(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch) {
  float* k = scratch;
  float* v = k + cpu::kKeys * tile->head_dim;
  WidenQ8(tile->k, tile->head_dim, KeySteps(), k);
  if (tile->v == nullptr) return Attend(*tile, k, {k, 1, cpu::kKeys}, *state);
  WidenQ8(tile->v, tile->value_dim, ValueSteps(tile->value_dim), v);
  Attend(*tile, k, {v, tile->value_dim, 1}, *state);
}

void WeighKeysF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float*) {
  WeighKeys(*tile, static_cast<const float*>(tile->k), *state, weights);
}

void WeighKeysF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float* scratch) {
  WeighHalf(*tile, *state, weights, scratch, F16ToF32);
}

void WeighKeysBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                   float* scratch) {
  WeighHalf(*tile, *state, weights, scratch, BF16ToF32);
}

void WeighKeysQ8(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                 float* scratch) {
  WidenQ8(tile->k, tile->head_dim, KeySteps(), scratch);
  WeighKeys(*tile, scratch, *state, weights);
}

void StoreKeysF32(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, float* k) {
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < head_dim; ++i) k[i * cpu::kKeys + slot + t] = x[t * x_stride + i];
  }
}

void StoreKeysF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                  uint16_t* k) {
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < head_dim; ++i) k[i * cpu::kKeys + slot + t] = F32ToF16(x[t * x_stride + i]);
  }
}

void StoreKeysBF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                   uint16_t* k) {
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < head_dim; ++i) {
      k[i * cpu::kKeys + slot + t] = F32ToBF16(x[t * x_stride + i]);
    }
  }
}

void StoreKeysQ8(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, void* k) {
  StoreQ8(x, x_stride, tokens, head_dim, slot, KeySteps(), k);
}

void StoreValuesQ8(const float* x, int64_t x_stride, int tokens, int value_dim, int slot, void* v) {
  StoreQ8(x, x_stride, tokens, value_dim, slot, ValueSteps(value_dim), v);
}

void AttendMerge(const cpu::AttentionState* state, const cpu::AttentionState* block, int queries,
                 int value_dim) {
  for (int query = 0; query < queries; ++query) {
    if (block->sum[query] == 0) continue;
    const Join join =
        MergeSums(&state->max[query], &state->sum[query], block->max[query], block->sum[query]);
    const int64_t offset = int64_t{query} * value_dim;
    for (int c = 0; c < value_dim; ++c) {
      float& out = state->out[offset + c];
      out = join(out, block->out[offset + c]);
    }
  }
}

}  // namespace reprise::reference
