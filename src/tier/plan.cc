// SPDX-License-Identifier: Apache-2.0
#include "tier/plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {

namespace {

constexpr size_t kReplacedMax = 8;

// Whether a record that begins where this one does, and has what it has, can take its place.
bool CanGo(const Catalog::Record& record, const StoreWish& wish, bool last) {
  const RecordFacts& facts = record.facts;
  if (record.children != (last ? 0 : 1) || record.holds > 0 || facts.state_bytes == 0) return false;
  if (wish.shape.block_bytes == 0) return facts.block_count == 0;
  return facts.block_bytes == wish.shape.block_bytes &&
         facts.first_block == static_cast<uint32_t>(facts.begin / kBlockTokens) &&
         wish.first_block <= static_cast<int32_t>(facts.first_block);
}

// Takes those off the end of the chain that the new one is to replace.
std::vector<RecordId> TakeReplaced(const Catalog& catalog, const StoreWish& wish,
                                   std::optional<Catalog::Place>* place) {
  std::vector<RecordId> replaced;
  uint64_t bytes = 0;
  while (*place && wish.passed && replaced.size() < kReplacedMax) {
    const RecordId id = (*place)->record;
    const Catalog::Record& record = catalog[id];
    bytes += uint64_t{record.facts.block_count} * record.facts.block_bytes;
    if (bytes > wish.shape.state_bytes || !CanGo(record, wish, replaced.empty())) break;
    replaced.push_back(id);
    place->reset();
    if (record.parent.valid()) *place = Catalog::Place{record.parent, record.facts.begin};
  }
  return replaced;
}

}  // namespace

std::optional<RecordPlan> PlanRecord(const Catalog& catalog, const PromptPath& path,
                                     const StoreWish& wish) {
  const int32_t position = wish.position;
  CHECK(position > 0 && position <= path.size());
  auto place = catalog.Find(path, position);
  if (place && place->position == position) return std::nullopt;
  std::vector<RecordId> replaced = TakeReplaced(catalog, wish, &place);
  const bool behind = wish.first_block > (place ? place->position / kBlockTokens : 0);
  if (behind && !wish.alone) return std::nullopt;
  if (behind) place.reset();
  RecordFacts facts;
  facts.space = path.grid(0);
  facts.model = wish.model;
  facts.reason = wish.reason;
  facts.begin = place ? place->position : 0;
  if (place) facts.parent = path.At(facts.begin);
  facts.end = position;
  facts.base = path.grid(position / kBlockTokens);
  facts.path = path.At(position);
  facts.block_bytes = wish.shape.block_bytes;
  facts.state_bytes = wish.shape.state_bytes;
  facts.created_ms = wish.now_ms;
  if (wish.shape.block_bytes > 0) {
    facts.first_block =
        static_cast<uint32_t>(behind ? wish.first_block : facts.begin / kBlockTokens);
    facts.block_count =
        static_cast<uint32_t>((position + kBlockTokens - 1) / kBlockTokens) - facts.first_block;
  }
  if (wish.shape.state_bytes == 0 && !behind) {
    for (int32_t block = facts.begin / kBlockTokens + 1; block <= (position - 1) / kBlockTokens;
         ++block) {
      facts.marks.push_back(path.grid(block));
    }
  }
  if (!CanBeStored(facts)) return std::nullopt;
  return RecordPlan{std::move(facts), place ? place->record : RecordId(), std::move(replaced)};
}

std::optional<ReadPlan> PlanRead(const Catalog& catalog, const Catalog::Place& place,
                                 uint32_t first_block) {
  if (!catalog.Has(place.record)) return std::nullopt;
  ReadPlan plan;
  plan.position = place.position;
  plan.record = place.record;
  const RecordFacts& last = catalog[place.record].facts;
  const uint32_t from = first_block;
  auto upto = static_cast<uint32_t>((place.position + kBlockTokens - 1) / kBlockTokens);
  if (last.block_bytes == 0 || upto < from) upto = from;
  plan.first_block = from;
  plan.block_count = upto - from;
  plan.bytes = plan.block_count * last.block_bytes + last.state_bytes;
  // Each block from the deepest record that has it: its parents may have less of its rows.
  bool state = last.state_bytes > 0;
  for (RecordId id = place.record; id.valid() && (upto > from || state); id = catalog[id].parent) {
    const RecordFacts& facts = catalog[id].facts;
    const uint32_t end = std::min(upto, facts.first_block + facts.block_count);
    const uint32_t begin = std::max(from, facts.first_block);
    const bool blocks = facts.block_count > 0 && begin < upto;
    if (blocks && end != upto) return std::nullopt;  // a gap
    if (blocks || state) plan.steps.push_back({id, begin, blocks ? end - begin : 0, state});
    if (blocks) upto = begin;
    state = false;
  }
  if (upto > from) return std::nullopt;
  return plan;
}

}  // namespace reprise
