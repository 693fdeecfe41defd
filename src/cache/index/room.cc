// SPDX-License-Identifier: Apache-2.0
// StateIndex: what running requests have, and what one more would take.
#include <algorithm>

#include "cache/index/state_index.h"

namespace reprise {

size_t StateIndex::BytesFree() const {
  const size_t taken = blocks_.leased_count() * block_bytes_ + size_t(live_states_) * state_bytes_ +
                       bytes_metadata();
  return options_.cache.budget_bytes - std::min(options_.cache.budget_bytes, taken);
}

size_t StateIndex::BytesWanted(const Lease& lease) {
  LeaseRecord& r = RecordOf(lease);
  const size_t state_bytes = r.started ? 0 : state_bytes_;
  if (!has_kv()) return state_bytes;
  const auto blocks_before = [this](int32_t position) {
    return static_cast<size_t>(position / options_.block_tokens);
  };
  // Up to the end of what is known and one block more; with a window, without what lies before it.
  const auto end = static_cast<int32_t>(r.tokens.size());
  const size_t needed = blocks_before(end) + 2 - blocks_before(kv_->FirstNeeded(end));
  size_t held = 0;
  if (r.started) {
    held = r.table.size() -
           std::min(r.table.size(), blocks_before(kv_->FirstNeeded(r.computed.physical)));
  } else if (const MatchResult match = Match(r); match.usable > 0) {
    std::vector<BlockId> table;
    kv_->Collect(match.path, match.usable, &table);
    held = static_cast<size_t>(std::count_if(table.begin(), table.end(), [this](BlockId block) {
      return block.valid() && blocks_.lease_refs(block) > 0;
    }));
  }
  return state_bytes + (needed - std::min(needed, held)) * block_bytes_;
}

}  // namespace reprise
