// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device_ptr.h"
#include "state/ids.h"
#include "state/spec.h"

namespace reprise {

class Adapter;
struct ChoiceBatch;

// A place inside a step where the recurrent state is wanted: after the first `row_count` rows of
// the slice, the state goes to `state` as well.
struct StateTap {
  uint32_t row_count = 0;
  StateId state;
};

// How far a sequence has come, in two numbers that differ where its K/V was compacted: the tokens
// that it stands for (positions, RoPE, recurrent state), and the rows of K/V that stand for them
// (block table, what attention reads).
struct Extent {
  int32_t logical = 0;
  int32_t physical = 0;

  Extent operator+(int32_t tokens) const { return {logical + tokens, physical + tokens}; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// The rows of one sequence in a step: tokens [row_begin, row_begin + row_count) of the batch stand
// at positions [past.logical, past.logical + row_count) of the sequence; their K/V goes to rows
// [past.physical, past.physical + row_count) of its blocks.
//
// REQUIRES: `blocks` covers rows [0, past.physical + row_count); the blocks that hold the new ones
// are private to the sequence. `state` is the recurrent state after past.logical tokens (zeros at
// 0); the step leaves it after past.logical + row_count tokens.
struct SequenceSlice {
  uint32_t row_begin = 0;
  uint32_t row_count = 0;
  Extent past;
  std::span<const BlockId> blocks;
  StateId state;
  std::span<const StateTap> taps = {};  // ascending, 0 < row_count <= the slice's
  // A number of the namespace (NamespaceKey::number). Models do not read it. The fake model of
  // simulations mixes it into all state, so that state of another namespace gives wrong logits.
  uint32_t space = 0;
  // Rows of the slice before that one are of the model as it is: an adapter may count from some
  // token on.
  uint32_t adapted_from = 0;
  // What changes the products of its rows (model/adapter/adapter.h); null: the model as it is.
  const Adapter* adapter = nullptr;
};

// Rows of a sequence whose attention is watched: what the keys of the sequence weigh with them is
// added to `weights`, for each list of the layout (a K/V head of a layer with full attention).
struct WatchedRows {
  uint32_t sequence = 0;   // of the batch
  uint32_t row_begin = 0;  // of its slice
  uint32_t row_count = 0;
  DevicePtr<float> weights;  // [layout.list_count(), stride]
  int64_t stride = 0;        // at least the rows of K/V that the last of them sees
};

// Rows that stand for a part of a picture: they begin with its vectors, not with a row of the
// vocabulary's table. (Their tokens are some that the vocabulary has.)
struct PictureRows {
  uint32_t row_begin = 0;  // of the batch
  uint32_t row_count = 0;
  DevicePtr<const float> vectors;  // [row_count, dim]
};

// Plain data for one forward pass. Rows of a sequence are contiguous and in order; a sequence
// appears at most once.
struct BatchView {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const SequenceSlice> sequences;  // cover all rows
  std::span<const uint32_t> logit_rows;      // rows whose logits are wanted, ascending
  // Out, [sequences] or empty: 1 if every row of the sequence left the last layer finite. A row
  // reads all the state it writes, so a state that is not finite shows in the rows of its own step.
  std::span<uint8_t> finite = {};
  // Out, [rows, dim] or empty: what the final norm makes of every row, before the head.
  std::span<float> hidden = {};
  std::span<const WatchedRows> watched = {};
  // What Executor::Choose will be asked for, word for word; null: not known yet, or not at all.
  const ChoiceBatch* choices = nullptr;
  std::span<const PictureRows> pictures = {};
  // [rows] or empty: where the rows stand for rotary embedding (time, row, column), where a picture
  // makes that differ from their positions. Empty: the position, three times.
  std::span<const std::array<int32_t, 3>> places = {};
};

// What stays of the K/V of a sequence: row lists[l][i] of list l (see WatchedRows) becomes row i.
// Layers that see a window keep their last rows. `to` are other blocks than `from`, or stand where
// they stood.
struct KeptKv {
  std::span<const BlockId> from;
  int32_t row_count = 0;
  std::span<const BlockId> to;
  std::span<const int32_t> lists;  // [layout.list_count(), kept], each ascending
  int32_t kept = 0;
};

// The memory behind the ids of a batch. A view: the owner is cache/store (or a test).
struct StateMemory {
  DevicePtr<std::byte> blocks;  // [block_count, layout.block_bytes()]
  DevicePtr<std::byte> states;  // [state_count, layout.state_bytes()]
  const StateLayout* layout = nullptr;
  const DeviceMemory* device = nullptr;  // that they lie in; null: one, whose places these are

  // Where the parts of all units that lie in one of several memories begin.
  DevicePtr<std::byte> blocks_in(int memory) const {
    return in_parts() && blocks ? PlaceIn(*device, memory, blocks) : blocks;
  }
  DevicePtr<std::byte> states_in(int memory) const {
    return in_parts() && states ? PlaceIn(*device, memory, states) : states;
  }
  bool in_parts() const { return device != nullptr && !layout->divided(); }
  DevicePtr<std::byte> block(BlockId id) const {
    return blocks + int64_t{id.value} * int64_t(layout->block_bytes());
  }
  DevicePtr<std::byte> state(StateId id) const {
    return states + int64_t{id.value} * int64_t(layout->state_bytes());
  }
};

}  // namespace reprise
