// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/joined/unit_memory.h"
#include "tensor/division.h"
#include "tensor/dtype.h"

namespace reprise {

// What a model carries from token to token: declared by a family, read by the cache. This is the
// only place where the two meet; the cache never learns a family's name.
//
//  kind        per             may be cut at
//  full K/V    token           any token
//  window K/V  token, last W   any token whose window is still held
//  recurrent   sequence        only where a snapshot was taken
enum class StateKind : uint8_t { kFullKv, kWindowKv, kRecurrent };

// One tensor of a layer's state. Per token for K/V kinds, per sequence for recurrent ones.
struct StateTensor {
  std::string name;  // for example "k", "conv", "delta"
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  // Values that stay together where several memories have a part each, from the first on: of a row
  // of [reach, channels], of one of anything else. Empty: the first extent where there are several,
  // or else pieces of a row.
  std::vector<Section> sections = {};

  size_t bytes() const;
};

struct LayerState {
  int layer = 0;
  StateKind kind = StateKind::kFullKv;
  int window = 0;  // kWindowKv: tokens that attention can see, the current one included
  std::vector<StateTensor> tensors;
  static constexpr int kAll = -1;
  // Of those that the model lies in: where the layer computes; kAll: on each a part.
  int memory = 0;

  // K/V kinds: heads that hold rows of their own.
  int kv_heads() const { return tensors[0].shape.size() > 1 ? int(tensors[0].shape[0]) : 1; }
};

// A layer may appear more than once (attention and recurrence side by side, two attentions a
// layer).
struct StateSpec {
  std::vector<LayerState> layers;
  int memories = 1;  // that layers in all of them are divided among
  // Cost of computing one token again, in multiply-adds: a constant part, and one per token of
  // context.
  double token_cost = 0;
  double token_cost_per_position = 0;

  bool has_recurrent() const;
  bool has_kv() const;
  // Bytes of K/V per token over all layers of `kind`; 0 for kRecurrent.
  size_t bytes_per_token(StateKind kind) const;
  size_t kv_block_bytes() const;  // all K/V of kBlockTokens tokens
  size_t state_bytes() const;     // all recurrent tensors of one sequence
};

// Where each tensor lies inside a block or a state. Both are contiguous, so copying one is a single
// memcpy. Where a model lies in several memories, each has a part of every unit; the order of the
// whole does not depend on that, so what left the memories finds its place in others.
//
//  block  for each layer state with K/V, in order: its tensors, in order, each kBlockTokens times
//  its
//         bytes; how tokens lie inside a tensor is the ops' choice (kernels/ops.h)
//  state  for each recurrent layer state, in order: its tensors, in order
// Every tensor starts at a multiple of 64 bytes.
class StateLayout {
 public:
  StateLayout() = default;
  explicit StateLayout(const StateSpec& spec);

  // `layer_state` indexes StateSpec::layers, `tensor` the tensors of that one.
  size_t offset(size_t layer_state, size_t tensor) const { return offsets_[layer_state][tensor]; }
  size_t tensor_count(size_t layer_state) const { return offsets_[layer_state].size(); }
  // Bytes of the tensor in a state, or of one token of it in a block.
  size_t bytes(size_t layer_state, size_t tensor) const { return bytes_[layer_state][tensor]; }
  size_t block_bytes() const { return block_.bytes; }
  size_t state_bytes() const { return state_.bytes; }
  const UnitShape& block() const { return block_; }
  const UnitShape& state() const { return state_; }
  // The same inside the part of the unit that lies in the layer state's memory, and how large such
  // a part is.
  size_t place(size_t layer_state, size_t tensor) const { return places_[layer_state][tensor]; }
  size_t block_bytes(int memory) const {
    return divided_ ? block_.bytes : BytesIn(block_, memory);
  }
  size_t state_bytes(int memory) const {
    return divided_ ? state_.bytes : BytesIn(state_, memory);
  }
  // Whether every layer has a part in each memory. Then its ops see whole units, and offsets in
  // them, and where a part lies is asked of the memory (UnitMemory).
  bool divided() const { return divided_; }
  // The larger of the shares of blocks and of states that lie in `memory`.
  double ShareOf(int memory) const;
  // Lists by K/V head of all layer states with full K/V, in order: the first of one of them, and
  // how many there are.
  size_t list_begin(size_t layer_state) const { return list_begins_[layer_state]; }
  size_t list_count() const { return list_count_; }

 private:
  static size_t BytesIn(const UnitShape& unit, int memory);
  // Adds a tensor, to each memory its part.
  void AddDivided(const LayerState& layer, const StateTensor& tensor, int memories,
                  UnitShape* unit);

  std::vector<std::vector<size_t>> offsets_;
  std::vector<std::vector<size_t>> places_;
  std::vector<std::vector<size_t>> bytes_;
  std::vector<size_t> list_begins_;
  UnitShape block_;
  UnitShape state_;
  size_t list_count_ = 0;
  bool divided_ = false;
};

}  // namespace reprise
