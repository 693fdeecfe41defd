// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device_ptr.h"

namespace reprise {

// One step as ops see it: which rows belong to which sequence, and where the state of each lies.
// Built once by the model (model/layers/step.h), uploaded once by the backend (BeginStep), read by
// every op of the step that has to do with positions or state. Everything is 4 bytes wide, so that
// a backend may send it as one piece.

// The rows [row_begin, row_begin + row_count) of the step are rows [position, position + row_count)
// of the K/V that the sequence holds. (Where they stand in the text is in `positions`: K/V of
// earlier tokens may have been dropped.)
struct StepSequence {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t position = 0;
  int32_t block_begin = 0;  // its K/V blocks, from position 0 on, are entries [block_begin,
  int32_t block_count = 0;  // block_begin + block_count) of `blocks`
  uint32_t state = 0;       // recurrent state: after the tokens before the step
  int32_t tap_begin = 0;    // entries of `taps`, ascending
  int32_t tap_count = 0;
};

// The recurrent state that the sequence has before row `row` of the step goes to `state` as well.
struct StepTap {
  int32_t row = 0;  // row_begin < row < row_begin + row_count of its sequence
  uint32_t state = 0;
};

// A block that is gone: behind every window, never read.
inline constexpr uint32_t kNoBlock = UINT32_MAX;

// The arrays of a step, in the memory of the host and in that of the backend.
template <template <typename> typename Array>
struct StepArrays {
  Array<const int32_t> tokens;          // [rows]
  Array<const int32_t> positions;       // [rows] in the text
  Array<const int32_t> row_sequences;   // [rows]
  Array<const StepSequence> sequences;  // cover all rows, in order
  Array<const uint32_t> blocks;         // block ids, of one sequence after another
  Array<const StepTap> taps;
  Array<const int32_t> logit_rows;  // ascending
};
template <typename T>
using HostArray = std::span<T>;

struct ChoiceBatch;

struct StepLayout {
  StepArrays<HostArray> host;
  StepArrays<DevicePtr> device;  // filled by BeginStep; valid until the end of the step

  // Units of state: id i begins at i * unit bytes. What is inside a unit is said per op (KvPlace,
  // state_offset).
  DevicePtr<std::byte> block_memory;
  size_t block_bytes = 0;
  DevicePtr<std::byte> state_memory;
  size_t state_bytes = 0;

  // [sequences], zero when BeginStep has ended: ops that store state, or read it, write a one where
  // they find what is no finite number (ops.h, FiniteRows). Null: nobody wants to know.
  DevicePtr<int32_t> spoilt;

  // What ChooseTokens will be asked for, word for word, of the logits of this step; null: not known
  // yet. A backend that chooses may do so with the step.
  const ChoiceBatch* choices = nullptr;

  int64_t rows() const { return static_cast<int64_t>(host.tokens.size()); }
};

}  // namespace reprise
