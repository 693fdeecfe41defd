// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "state/batch.h"

namespace reprise {

// One forward pass as its layers see it: the batch, and the state of its sequences as operands of
// ops. Everything it hands out lives in the scratch arena of the context.
class Step {
 public:
  Step(const OpContext& context, const BatchView& batch, const StateMemory& memory);

  const OpContext& context() const { return context_; }
  const BatchView& batch() const { return batch_; }
  int64_t rows() const { return int64_t(batch_.tokens.size()); }
  std::span<const int32_t> positions() const { return positions_; }  // [rows]

  // Uninitialised activations [rows, cols].
  Rows MakeRows(int64_t cols) const { return MakeRows(rows(), cols); }
  Rows MakeRows(int64_t row_count, int64_t cols) const;

  // The K/V of every sequence in entry `entry` of the model's StateSpec (tensor 0: K, tensor 1: V
  // if there is one).
  // Valid until the next call.
  std::span<const KvSequence> Kv(size_t entry) const;
  // Calls op(sequences) for one tensor of a recurrent entry so that every row of every sequence is
  // run once, in order. Where a state is wanted on the way (SequenceSlice::taps) the rows come in
  // several calls and the state is copied between them: scans give the same bits however they are
  // cut.
  template <typename Op>
  void Scan(size_t entry, size_t tensor, const Op& op) const {
    size_t done = 0;
    do {
      op(NextSegments(entry, tensor, done));
      CopyTaps(entry, tensor, done);
    } while (++done <= taps_max_);
  }

 private:
  // The rows of each sequence between its tap number `done - 1` and the next one.
  std::span<const RecurrentSequence> NextSegments(size_t entry, size_t tensor, size_t done) const;
  void CopyTaps(size_t entry, size_t tensor, size_t done) const;

  const OpContext& context_;
  const BatchView& batch_;
  const StateMemory& memory_;
  std::span<int32_t> positions_;
  std::span<std::byte*> k_blocks_;  // of all sequences, one after another
  std::span<std::byte*> v_blocks_;
  std::span<KvSequence> kv_;
  std::span<RecurrentSequence> recurrent_;
  size_t taps_max_ = 0;  // of any sequence
};

// Columns [begin, begin + count) of every row.
inline Rows Columns(const Rows& x, int64_t begin, int64_t count) {
  return Rows{x.data + begin, x.rows, count, x.stride};
}

}  // namespace reprise
