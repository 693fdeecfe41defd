// SPDX-License-Identifier: Apache-2.0
#include "cache/component/kv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace reprise {

std::unique_ptr<Kv> Kv::Make(const StateSpec& spec, RadixTree* tree, BlockPool* pool,
                             int32_t block_tokens) {
  if (spec.bytes_per_token(StateKind::kFullKv) > 0) {
    return std::make_unique<FullKv>(tree, pool, block_tokens);
  }
  if (!spec.has_kv()) return nullptr;
  int window = 0;
  for (const LayerState& layer : spec.layers) {
    if (layer.kind == StateKind::kWindowKv) window = std::max(window, layer.window);
  }
  return std::make_unique<WindowKv>(tree, pool, block_tokens, window);
}

Kv::Run& Kv::RunOf(NodeId node) {
  runs_.Grow(size_t{node.value} + 1);
  return runs_[node.value];
}

int32_t Kv::end(NodeId node) const {
  return holds(node) ? runs_[node.value].end : tree_->begin(node);
}

std::span<const BlockId> Kv::blocks(NodeId node) const {
  if (!holds(node)) return {};
  return runs_[node.value].blocks;
}

// Rows of grid block `grid` that lie before `position`.
uint8_t Kv::RowsUpTo(int32_t grid, int32_t position) const {
  return static_cast<uint8_t>(std::clamp(position - grid * block_tokens_, 0, block_tokens_));
}

BlockId Kv::block_at(NodeId node, int32_t position) const {
  if (!holds(node) || position >= runs_[node.value].end) return BlockId();
  const Run& run = runs_[node.value];
  const int32_t i = GridOf(position) - GridOf(tree_->begin(node));
  return position % block_tokens_ < run.rows[i] ? run.blocks[i] : BlockId();
}

BlockId Kv::last_block(NodeId node) const {
  CHECK(holds(node));
  return runs_[node.value].blocks.back();
}

size_t Kv::CountBlocks(NodeId node, int32_t upto) const {
  const auto held = blocks(node);
  const auto count = std::min<size_t>(
      held.size(), size_t(std::max(0, GridEnd(upto) - GridOf(tree_->begin(node)))));
  return size_t(std::count_if(held.begin(), held.begin() + count,
                              [](BlockId block) { return block.valid(); }));
}

void Kv::Attach(NodeId node, int32_t from, int32_t upto, std::span<const BlockId> table) {
  const int32_t begin = tree_->begin(node);
  CHECK(upto <= tree_->end(node));
  if (upto <= begin || upto <= from) return;
  Run& run = RunOf(node);
  const bool held = run.holds();
  const int32_t end = std::max(upto, held ? run.end : begin);
  const int32_t first = GridOf(begin);
  list_bytes_ -= run.bytes();
  run.blocks.resize(GridEnd(end) - first);
  run.rows.resize(GridEnd(end) - first);
  for (int32_t g = std::max(first, GridOf(from)); g < GridEnd(upto); ++g) {
    BlockId& have = run.blocks[g - first];
    const BlockId theirs = table[g];
    const uint8_t rows = RowsUpTo(g, upto);
    if (!theirs.valid() || (have.valid() && run.rows[g - first] >= rows)) continue;
    pool_->RefTree(theirs);
    if (have.valid()) pool_->UnrefTree(have);
    have = theirs;
    run.rows[g - first] = rows;
  }
  run.end = end;
  list_bytes_ += run.bytes();
  if (!held) tree_->Hold(node);
}

void Kv::Trim(NodeId node, int32_t upto) {
  if (!holds(node)) return;
  Run& run = runs_[node.value];
  const int32_t begin = tree_->begin(node);
  if (upto >= run.end) return;
  const size_t keep = upto > begin ? GridEnd(upto) - GridOf(begin) : 0;
  while (run.blocks.size() > keep) {
    if (run.blocks.back().valid()) pool_->UnrefTree(run.blocks.back());
    run.blocks.pop_back();
    run.rows.pop_back();
  }
  run.end = upto;
  if (keep > 0) {
    run.rows.back() = std::min(run.rows.back(), RowsUpTo(GridEnd(upto) - 1, upto));
    return;
  }
  list_bytes_ -= run.bytes();
  run = Run();
  tree_->Release(node);
}

void Kv::TakeFromBelow(NodeId node, NodeId below) {
  const int32_t at = tree_->end(node);
  if (at % block_tokens_ == 0 || end(node) != at || !holds(below)) return;
  BlockId& mine = runs_[node.value].blocks.back();
  const BlockId theirs = runs_[below.value].blocks.front();
  if (!mine.valid() || !theirs.valid() || mine == theirs) return;
  pool_->RefTree(theirs);
  pool_->UnrefTree(mine);
  mine = theirs;
}

void Kv::DropRange(NodeId node, int32_t from, int32_t upto) {
  if (!holds(node)) return;
  Run& run = runs_[node.value];
  const int32_t first = GridOf(tree_->begin(node));
  upto = std::min(upto, run.end);
  for (int32_t g = std::max(first, GridEnd(from)); g < GridOf(upto); ++g) {
    BlockId& block = run.blocks[g - first];
    if (block.valid()) pool_->UnrefTree(block);
    block = BlockId();
    run.rows[g - first] = 0;
  }
}

void Kv::Collect(const RadixTree::Path& path, int32_t position, std::vector<BlockId>* table) const {
  CollectFrom(path, FirstBlock(position), position, table);
}

void Kv::CollectFrom(const RadixTree::Path& path, int32_t needed, int32_t position,
                     std::vector<BlockId>* table) const {
  table->assign(GridEnd(position), BlockId());
  for (const RadixTree::PathStep& step : path) {
    const int32_t first = GridOf(tree_->begin(step.node));
    const auto held = blocks(step.node);
    const int32_t last = std::min<int32_t>(GridEnd(std::min(step.end, position)),
                                           first + static_cast<int32_t>(held.size()));
    for (int32_t g = std::max(first, needed); g < last; ++g) {
      if (held[g - first].valid()) (*table)[g] = held[g - first];
    }
    if (step.end >= position) break;
  }
}

void Kv::OnSplit(NodeId upper, NodeId lower) {
  if (!holds(lower)) return;
  const int32_t at = tree_->end(upper);
  Run& up = RunOf(upper);  // may move runs_
  Run& low = runs_[lower.value];
  list_bytes_ -= low.bytes();
  const int32_t first = GridOf(tree_->begin(upper));
  const Run all = std::move(low);
  low = Run();
  up.end = std::min(all.end, at);
  const int32_t kept = GridEnd(up.end) - first;
  up.blocks.assign(all.blocks.begin(), all.blocks.begin() + kept);
  up.rows.assign(all.rows.begin(), all.rows.begin() + kept);
  up.rows.back() = std::min(up.rows.back(), RowsUpTo(first + kept - 1, up.end));
  tree_->Hold(upper);
  if (all.end > at) {
    const int32_t moved = GridOf(at) - first;
    low.end = all.end;
    low.blocks.assign(all.blocks.begin() + moved, all.blocks.end());
    low.rows.assign(all.rows.begin() + moved, all.rows.end());
    // The block across the split belongs to both.
    if (at % block_tokens_ != 0 && low.blocks[0].valid()) pool_->RefTree(low.blocks[0]);
  } else {
    tree_->Release(lower);
  }
  list_bytes_ += up.bytes() + low.bytes();
}

void Kv::OnRemove(NodeId node) { CHECK(!holds(node)); }

size_t Kv::bytes() const { return runs_.bytes() + list_bytes_; }

Status Kv::CheckNode(NodeId node) const {
  if (!holds(node)) return OkStatus();
  const Run& run = runs_[node.value];
  const int32_t begin = tree_->begin(node);
  const auto fail = [node](const char* what) {
    return Internal(fmt::format("K/V of node #{}: {}", node.value, what));
  };
  if (run.end <= begin || run.end > tree_->end(node)) return fail("held part is not in the run");
  if (run.rows.size() != run.blocks.size() ||
      static_cast<int32_t>(run.blocks.size()) != GridEnd(run.end) - GridOf(begin)) {
    return fail("number of blocks does not cover the held part");
  }
  return OkStatus();
}

std::string Kv::Describe(NodeId node) const {
  if (!holds(node)) return "";
  return fmt::format(" kv={}", runs_[node.value].end);
}

int32_t FullKv::Serve(const RadixTree::Path& path, int32_t limit) const {
  int32_t position = 0;
  for (const RadixTree::PathStep& step : path) {
    position = std::min(end(step.node), step.end);
    if (position < step.end || position >= limit) break;
  }
  return std::min(position, limit);
}

Status FullKv::CheckNode(NodeId node) const {
  REPRISE_TRY(Kv::CheckNode(node));
  if (!holds(node)) return OkStatus();
  const Run& run = runs_[node.value];
  for (size_t i = 0; i < run.blocks.size(); ++i) {
    const int32_t grid = GridOf(tree_->begin(node)) + static_cast<int32_t>(i);
    if (!run.blocks[i].valid() || run.rows[i] != RowsUpTo(grid, run.end)) {
      return Internal(fmt::format("K/V of node #{} has a gap", node.value));
    }
  }
  const NodeId above = tree_->parent(node);
  if (!tree_->IsRoot(above) && end(above) != tree_->end(above)) {
    return Internal(fmt::format("K/V of node #{} hangs in the air", node.value));
  }
  return OkStatus();
}

WindowKv::Held WindowKv::Walk(const RadixTree::Path& path, int32_t limit) const {
  Held all;
  for (const RadixTree::PathStep& step : path) {
    const int32_t upto = std::min(step.end, limit);
    int32_t position = tree_->begin(step.node);
    while (position < upto) {
      const int32_t next = std::min(upto, (GridOf(position) + 1) * block_tokens_);
      // Held from here to the first row that is missing.
      int32_t held = position;
      if (block_at(step.node, position).valid()) {
        const int32_t i = GridOf(position) - GridOf(tree_->begin(step.node));
        const int32_t rows_end = GridOf(position) * block_tokens_ + runs_[step.node.value].rows[i];
        held = std::min({next, end(step.node), rows_end});
        if (all.since <= FirstNeeded(held)) all.best = held;
      }
      if (held < next) all.since = next;
      position = next;
    }
    if (step.end >= limit) break;
  }
  return all;
}

int32_t WindowKv::Serve(const RadixTree::Path& path, int32_t limit) const {
  return Walk(path, limit).best;
}

int32_t WindowKv::HeldSince(const RadixTree::Path& path, int32_t position) const {
  return Walk(path, position).since;
}

}  // namespace reprise
