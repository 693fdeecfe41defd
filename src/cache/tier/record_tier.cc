// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/record_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

// What one Poll copies: an engine that is at work polls once a step.
constexpr size_t kCopyInBytes = size_t{16} << 20;

int64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

SnapshotReason ReasonOf(const RecordFacts& facts) {
  const bool known = facts.reason < static_cast<uint32_t>(kSnapshotReasonCount);
  return known ? static_cast<SnapshotReason>(facts.reason) : SnapshotReason::kPromptEnd;
}

}  // namespace

void RecordTier::Open(const StateMemory& memory, DeviceMemory& device) {
  memory_ = memory;
  device_ = &device;
  shape_ = {memory.layout->block_bytes(), memory.layout->state_bytes()};
}

void RecordTier::Know(TierRecordId id, const Catalog::Place& place) {
  if (!places_.try_emplace(id, place).second) return;
  known_as_[place.record].push_back(id);
}

void RecordTier::Find(const NamespaceKey& key, std::span<const TokenId> prompt,
                      const Found& found) {
  const PromptPath path(RootOf(key), prompt);
  const auto deepest = store_->Deepest(path, path.size());
  if (!deepest) return;
  const Catalog& catalog = store_->catalog();
  std::vector<Catalog::Place> chain;
  for (Catalog::Place at = *deepest; at.record.valid();) {
    const Catalog::Record& record = catalog[at.record];
    if (record.facts.block_bytes != shape_.block_bytes ||
        record.facts.state_bytes != shape_.state_bytes) {
      return;
    }
    chain.push_back(at);
    at = {record.parent, record.facts.begin};
  }
  TierRecordId parent;
  for (auto place = chain.rbegin(); place != chain.rend(); ++place) {
    const RecordFacts& facts = catalog[place->record].facts;
    const TierRecordId id = found({.parent = parent,
                                   .first_block = static_cast<int32_t>(facts.first_block),
                                   .position = place->position,
                                   .reason = ReasonOf(facts)});
    if (!id.valid()) return;
    Know(id, *place);
    parent = id;
  }
}

void RecordTier::Begin(const Move& move) {
  if (move.kind == Move::Kind::kSpill) {
    spills_.push_back({.move = move, .draft = std::nullopt, .begun_ns = NowNs()});
    return;
  }
  Fetch fetch{.move = move, .begun_ns = NowNs(), .came = std::nullopt};
  const auto place = places_.find(move.records.back().id);
  const auto plan = place == places_.end()
                        ? std::nullopt
                        : store_->Plan(place->second, static_cast<uint32_t>(move.first_block));
  if (plan && plan->block_count == move.blocks.size()) fetch.ticket = store_->Fetch(*plan, shape_);
  fetch.failed = fetch.ticket == 0;
  fetches_.push_back(std::move(fetch));
}

void RecordTier::Cancel(uint64_t move) {
  if (!spills_.empty() && spills_.front().move.id == move && spills_.front().draft &&
      store_->storing()) {
    store_->AbortStore();
  }
  const size_t gone =
      std::erase_if(spills_, [&](const Spill& one) { return one.move.id == move; }) +
      std::erase_if(fetches_, [&](const Fetch& one) { return one.move.id == move; });
  CHECK(gone == 1);
}

// What the index forgets may be found again: it is the store that decides what goes.
void RecordTier::Remove(TierRecordId record) {
  const auto place = places_.find(record);
  if (place == places_.end()) return;
  const auto known = known_as_.find(place->second.record);
  std::erase(known->second, record);
  if (known->second.empty()) known_as_.erase(known);
  places_.erase(place);
}

void RecordTier::Reset(const NamespaceKey* key) {
  const PathId space = key != nullptr ? RootOf(*key) : PathId();
  store_->Forget(key != nullptr ? &space : nullptr);
}

Tier::News RecordTier::Poll() {
  News news;
  HearStore(&news);
  CopyIn(&news);
  CopyOut(&news);
  return news;
}

void RecordTier::HearStore(News* news) {
  RecordStore::News heard = store_->Poll();
  // Of one that was cancelled after its last part nobody wants to know: it is there, and found.
  const bool ours = !spills_.empty() && spills_.front().draft && !store_->storing();
  if (heard.store_ended && ours) {
    const Spill& spill = spills_.front();
    if (heard.stored)
      Know(spill.move.records.front().id, {*heard.stored, spill.move.records.front().position});
    news->done.push_back({.id = spill.move.id,
                          .ok = heard.stored.has_value(),
                          .bytes = spill.bytes,
                          .ns = NowNs() - spill.begun_ns});
    spills_.pop_front();
  }
  news->answered = std::move(heard.looked);
  for (RecordStore::Fetched& fetched : heard.fetched) {
    const auto fetch = std::find_if(fetches_.begin(), fetches_.end(),
                                    [&](const Fetch& one) { return one.ticket == fetched.ticket; });
    if (fetch == fetches_.end()) continue;  // cancelled
    fetch->failed = !fetched.status.ok();
    fetch->came = std::move(fetched);
  }
  for (const RecordId gone : heard.gone) {
    const auto known = known_as_.find(gone);
    if (known == known_as_.end()) continue;
    for (const TierRecordId id : known->second) {
      places_.erase(id);
      news->lost.push_back(id);
    }
    known_as_.erase(known);
  }
}

// One part at a time, if the disk has room for it.
void RecordTier::CopyOut(News* news) {
  while (!spills_.empty()) {
    Spill& spill = spills_.front();
    if (!spill.draft) {
      if (!store_->settled()) return;  // one that was cancelled is still being written
      bool stored = false;
      if (BeginSpill(&spill, &stored)) continue;
      news->done.push_back({.id = spill.move.id, .ok = stored});
      spills_.pop_front();
      continue;
    }
    if (store_->storing() && store_->HasRoom(spill.draft->layout.parts()[spill.next].bytes)) {
      CopyPart(&spill);
    }
    return;
  }
}

// Whether it has begun. If not, it may be there already: from an earlier life, say.
bool RecordTier::BeginSpill(Spill* spill, bool* stored) {
  const Move& move = spill->move;
  const RecordHead& head = move.records.front();
  const PromptPath path(RootOf(*move.key), move.tokens);
  const auto deepest = store_->Deepest(path, head.position);
  *stored = deepest && deepest->position == head.position;
  if (*stored) Know(head.id, *deepest);
  if (*stored) return false;
  spill->draft = store_->BeginStore(path, {.position = head.position,
                                           .shape = shape_,
                                           .model = store_->NamespaceOf(move.key->digest, ""),
                                           .reason = static_cast<uint32_t>(head.reason),
                                           .first_block = move.first_block});
  return spill->draft.has_value();
}

void RecordTier::CopyPart(Spill* spill) {
  const RecordLayout::Part& part = spill->draft->layout.parts()[spill->next++];
  std::vector<std::byte> bytes(part.bytes);
  for (uint32_t i = 0; i < part.block_count; ++i) {
    const size_t at = part.first_block + i - static_cast<size_t>(spill->move.first_block);
    device_->Download(bytes.data() + i * shape_.block_bytes, memory_.block(spill->move.blocks[at]),
                      shape_.block_bytes);
  }
  if (part.block_count == 0) {
    const auto from = memory_.state(spill->move.state) + static_cast<int64_t>(part.state_offset);
    device_->Download(bytes.data(), from, part.bytes);
  }
  spill->bytes += part.bytes;
  store_->AddPart(std::move(bytes));
}

void RecordTier::CopyIn(News* news) {
  size_t bytes_left = kCopyInBytes;
  std::erase_if(fetches_, [&](Fetch& fetch) {
    const bool done = fetch.failed || (fetch.came && CopySome(&fetch, &bytes_left));
    if (!done) return false;
    news->done.push_back({.id = fetch.move.id,
                          .ok = !fetch.failed,
                          .bytes = fetch.came ? fetch.came->bytes.size() : 0,
                          .ns = NowNs() - fetch.begun_ns});
    return true;
  });
}

// Whether all of it is in memory now.
bool RecordTier::CopySome(Fetch* fetch, size_t* bytes_left) {
  const std::vector<BlockId>& blocks = fetch->move.blocks;
  const std::byte* bytes = fetch->came->bytes.data();
  for (; fetch->next < blocks.size() && *bytes_left > 0; ++fetch->next) {
    device_->Upload(memory_.block(blocks[fetch->next]), bytes + fetch->next * shape_.block_bytes,
                    shape_.block_bytes);
    *bytes_left -= std::min(*bytes_left, shape_.block_bytes);
  }
  if (fetch->next < blocks.size()) return false;
  if (fetch->move.state.valid()) {
    device_->Upload(memory_.state(fetch->move.state), bytes + blocks.size() * shape_.block_bytes,
                    shape_.state_bytes);
  }
  return true;
}

}  // namespace reprise
