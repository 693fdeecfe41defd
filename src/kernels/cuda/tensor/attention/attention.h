// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/view.h"

// Attention over pages of 64 stored positions. Page layout on the device, per layer: K
// [kv_heads, 64, head_dim], V [kv_heads, 64, value_dim], at their offsets in a block.
//
// Of type q8_0, per head: codes as elements of other types lie, scales behind them (kv_q8.cuh).
//
// K/V in 16 bit: the bits of reference::AttendPages; of q8_0 likewise, with their elements, which
// are f16. In f32: those of the CPU (table.h).
namespace reprise::cuda {

enum class KvType : uint8_t { kF16, kBF16, kF32, kQ8 };

struct KvView {
  int64_t k_offset = 0;  // bytes, in a block
  int64_t v_offset = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  KvType type = KvType::kF16;
  bool value_in_key = false;  // values are the first value_dim channels of the keys
};

// The widest heads of keys and of values that there are kernels for.
inline constexpr int kAttentionHeadMax = 576;
inline constexpr int kAttentionValueMax = 512;
// Bytes of a workspace, at most.
inline constexpr size_t kAttendWorkspaceMax = size_t{1} << 29;

// Rounds K and V to their storage type and writes them to the blocks.
void StoreKv(Stream stream, const StepView& step, const KvView& kv, const View& k, const View& v);

// StoreKv behind the norms of heads and rotary embedding (kernels/joint_ops.h), in one kernel.
struct HeadsView {
  int q_heads = 0;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float eps = 0;
  const float* cos = nullptr;  // [rows, half]
  const float* sin = nullptr;
  int half = 0;
};
void StoreHeads(Stream stream, const StepView& step, const KvView& kv, const HeadsView& inputs,
                const View& q, const View& k, const View& v);

struct AttentionView {
  int q_heads = 0;
  float scale = 1;
  int window = 0;                // 0: all; else keys with q - k < window
  float softcap = 0;             // 0: none
  View gate;                     // where it has data: out = sigmoid(gate) * out
  const float* sinks = nullptr;  // [q_heads] or null
  // [rows of the step] or null: what a row sees ends there (kernels/ops.h, AttentionParams::ends).
  const int32_t* ends = nullptr;
};

// How far back the rows of a step look. Rounded up to powers of two, so that steps have few shapes.
struct DepthView {
  int64_t longest = 0;  // blocks of the sequence that has the most
  // Groups of pages (reference/gpu/paged_attention.h) of each row of its sequence, of all rows.
  int64_t row_groups = 0;
};
DepthView DepthOf(std::span<const StepSequence> sequences);

// Bytes of workspace that Attend needs for a step. Where the pages of few queries are divided among
// blocks, results of groups: row_groups * q_heads * (2 + value_dim) floats. For one row a sequence
// that is at most a 64th of what the layer holds of K and V in 16 bit where 8 heads share one of
// K/V. Where queries are many, about as much as the result.
size_t AttendWorkspace(const StepView& step, const DepthView& depth, const KvView& kv,
                       const AttentionView& params);
void Attend(Stream stream, const StepView& step, const DepthView& depth, const KvView& kv,
            const AttentionView& params, const View& q, const View& out, void* workspace);

}  // namespace reprise::cuda
