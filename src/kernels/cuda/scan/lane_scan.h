// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

// Scans with a matrix state, sequential over the rows of a sequence, all sequences of a step in one
// launch. A state stays in registers from the first row of its sequence to the last; where a tap
// wants it, it is written on the way. The bits are those of kernels/reference/gpu/lane_scan.h.
//
// States lie at `state_offset` bytes in the state memory of the step: [heads, keys, columns] f32.
namespace reprise::cuda {

// An operand with one row per token and a part per head.
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;       // floats from one token to the next
  int64_t head_stride = 0;  // floats from one head to the next
};

struct LaneScanShape {
  int heads = 0;  // of the state
  int keys = 0;
  int columns = 0;
  // Heads of the operands along keys: head h of the state reads h / (heads / key_heads) of them, or
  // h % key_heads where tiled.
  int key_heads = 0;
  bool tiled = false;
};

struct DeltaOperands {
  HeadRows q, k, v, decay, beta;
};
void GatedDelta(Stream stream, const StepView& step, int64_t state_offset,
                const LaneScanShape& shape, const DeltaOperands& in, const View& y);

// The same with a decay per key.
void KeyDecayDelta(Stream stream, const StepView& step, int64_t state_offset,
                   const LaneScanShape& shape, const DeltaOperands& in, const View& y);

struct SsdOperands {
  HeadRows x, b, c, dt, decay;
  const float* skip = nullptr;  // [heads]
};
void Ssd(Stream stream, const StepView& step, int64_t state_offset, const LaneScanShape& shape,
         const SsdOperands& in, const View& y);

struct WkvOperands {
  HeadRows r, w, k, v, a, b;
};
void Wkv7(Stream stream, const StepView& step, int64_t state_offset, const LaneScanShape& shape,
          const WkvOperands& in, const View& y);

// The most keys that a state may have.
inline constexpr int kLaneScanKeysMax = 256;

}  // namespace reprise::cuda
