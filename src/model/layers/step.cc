// SPDX-License-Identifier: Apache-2.0
#include "model/layers/step.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace reprise {
namespace {

template <typename T>
std::span<T> MakeSpan(const OpContext& context, size_t count) {
  return {static_cast<T*>(context.scratch->Bytes(count * sizeof(T))), count};
}

size_t BlockCount(const SequenceSlice& sequence) {
  const size_t rows = size_t(sequence.past.physical) + sequence.row_count;
  return (rows + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

Step::Step(const OpContext& context, const BatchView& batch, const StateMemory& memory)
    : context_(context), batch_(batch), memory_(memory) {
  CHECK(!batch.tokens.empty());
  positions_ = MakeSpan<int32_t>(context, batch.tokens.size());
  size_t block_count = 0;
  size_t row = 0;
  for (const SequenceSlice& sequence : batch.sequences) {
    taps_max_ = std::max(taps_max_, sequence.taps.size());
    CHECK(sequence.row_begin == row && sequence.past.physical >= 0 &&
          sequence.past.logical >= sequence.past.physical);
    for (uint32_t i = 0; i < sequence.row_count; ++i) {
      positions_[row++] = sequence.past.logical + int32_t(i);
    }
    if (memory.layout->block_bytes() != 0) {
      CHECK(sequence.blocks.size() >= BlockCount(sequence));
      block_count += BlockCount(sequence);
    }
  }
  CHECK(row == batch.tokens.size());
  k_blocks_ = MakeSpan<std::byte*>(context, block_count);
  v_blocks_ = MakeSpan<std::byte*>(context, block_count);
  kv_ = MakeSpan<KvSequence>(context, batch.sequences.size());
  recurrent_ = MakeSpan<RecurrentSequence>(context, batch.sequences.size());
}

Rows Step::MakeRows(int64_t row_count, int64_t cols) const {
  return Rows{context_.scratch->Floats(size_t(row_count * cols)), row_count, cols, cols};
}

std::span<const KvSequence> Step::Kv(size_t entry) const {
  const size_t k_offset = memory_.layout->offset(entry, 0);
  const bool has_values = memory_.layout->tensor_count(entry) > 1;
  const size_t v_offset = has_values ? memory_.layout->offset(entry, 1) : k_offset;
  size_t first = 0;
  for (size_t s = 0; s < batch_.sequences.size(); ++s) {
    const SequenceSlice& sequence = batch_.sequences[s];
    const size_t count = BlockCount(sequence);
    for (size_t b = 0; b < count; ++b) {
      // Blocks before every window may be gone; nothing reads them.
      const bool held = sequence.blocks[b].valid();
      std::byte* block = held ? memory_.block(sequence.blocks[b]) : nullptr;
      k_blocks_[first + b] = held ? block + k_offset : nullptr;
      v_blocks_[first + b] = held ? block + v_offset : nullptr;
    }
    kv_[s] = KvSequence{k_blocks_.data() + first, v_blocks_.data() + first, sequence.past.physical,
                        int64_t(sequence.row_begin), int64_t(sequence.row_count)};
    first += count;
  }
  return kv_;
}

std::span<const RecurrentSequence> Step::NextSegments(size_t entry, size_t tensor,
                                                      size_t done) const {
  const size_t offset = memory_.layout->offset(entry, tensor);
  size_t count = 0;
  for (const SequenceSlice& sequence : batch_.sequences) {
    if (done > sequence.taps.size()) continue;
    const uint32_t begin = done == 0 ? 0 : sequence.taps[done - 1].row_count;
    const uint32_t end =
        done == sequence.taps.size() ? sequence.row_count : sequence.taps[done].row_count;
    auto* state = reinterpret_cast<float*>(memory_.state(sequence.state) + offset);
    recurrent_[count++] =
        RecurrentSequence{state, int64_t(sequence.row_begin) + begin, int64_t(end) - int64_t(begin),
                          sequence.past.logical + int32_t(begin)};
  }
  return recurrent_.first(count);
}

void Step::CopyTaps(size_t entry, size_t tensor, size_t done) const {
  // Large enough to be worth a thread, small enough to share one tensor among several.
  constexpr int64_t kGrainBytes = 64 << 10;
  const size_t offset = memory_.layout->offset(entry, tensor);
  const size_t bytes = memory_.layout->bytes(entry, tensor);
  for (const SequenceSlice& sequence : batch_.sequences) {
    if (done >= sequence.taps.size()) continue;
    const std::byte* from = memory_.state(sequence.state) + offset;
    std::byte* to = memory_.state(sequence.taps[done].state) + offset;
    context_.pool->ParallelFor(int64_t(bytes), kGrainBytes, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, size_t(end - begin));
    });
  }
}

}  // namespace reprise
