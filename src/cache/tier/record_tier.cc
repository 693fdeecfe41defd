// SPDX-License-Identifier: Apache-2.0
#include "cache/tier/record_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reprise {
namespace {

// What one Poll copies: an engine that is at work polls once a step.
constexpr size_t kCopyInBytes = size_t{16} << 20;
// From so many bytes on another thread copies into memory of this process.
constexpr size_t kBesideBytes = size_t{1} << 20;
constexpr size_t kPieceBytes = size_t{256} << 10;  // in pieces: nobody waits longer to call it off

}  // namespace

void RecordTier::Open(const StateMemory& memory, DeviceMemory& device) {
  memory_ = memory;
  device_ = &device;
  shape_ = {memory.layout->block_bytes(), packing_.bytes(memory.layout->state_bytes())};
  // As much as may wait to be written, and one more that is being copied.
  const size_t part_bytes = std::max(kPartBytes, shape_.block_bytes);
  const size_t bytes = (RecordStore::kQueueBytes / part_bytes + 2) * part_bytes;
  auto lane = OpenLane(device, bytes);
  if (!lane.ok()) lane = OpenPlainLane(device, bytes);
  CHECK(lane.ok());
  parts_ = std::make_unique<PartPool>(std::move(*lane), part_bytes);
}

void RecordTier::AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const {
  for (const PathId& root : RootsOf(key)) roots->push_back(root);
}

void RecordTier::Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) {
  // What both keys have is known as that of the current one.
  for (const PathId& root : RootsOf(key)) {
    const PromptPath* path = prompt.In(root);
    if (path != nullptr) known_.Tell(store_->catalog(), *path, shape_, found);
  }
  const auto model = store_->NamespaceBefore(DigestOf(key), "");
  if (model) models_before_.insert(*model);
}

std::vector<PathId> RecordTier::RootsOf(const NamespaceKey& key) const {
  std::vector<PathId> roots = {RootOf(key)};
  const auto before = store_->NamespaceBefore(DigestOf(key), key.salt);
  if (before) roots.push_back(*before);
  return roots;
}

bool RecordTier::Continues(TierRecordId record) const {
  const auto place = known_.PlaceOf(record);
  const Catalog& catalog = store_->catalog();
  return models_before_.empty() || !place || !catalog.Has(place->record) ||
         !models_before_.contains(catalog[place->record].facts.model);
}

void RecordTier::Begin(const Move& move) {
  if (move.kind == Move::Kind::kSpill) {
    Spill& spill = spills_.emplace_back();
    spill.move = move;
    spill.begun_ns = clock_.NowNs();
    return;
  }
  Fetch fetch{.move = move, .begun_ns = clock_.NowNs(), .came = std::nullopt};
  const auto place = known_.PlaceOf(move.records.back().id);
  const auto plan =
      place ? store_->Plan(*place, static_cast<uint32_t>(move.first_block)) : std::nullopt;
  if (plan && plan->block_count == move.blocks.size()) fetch.ticket = store_->Fetch(*plan, shape_);
  fetch.failed = fetch.ticket == 0;
  fetches_.push_back(std::move(fetch));
}

void RecordTier::Cancel(uint64_t move) {
  if (!spills_.empty() && spills_.front().move.id == move && spills_.front().draft) {
    if (store_->storing()) store_->AbortStore();
    return DropSpill();
  }
  for (const Fetch& fetch : fetches_) {
    if (fetch.move.id == move && fetch.arrival) fetch.arrival->chore.CallOff(copier_);
  }
  const size_t gone =
      std::erase_if(spills_, [&](const Spill& one) { return one.move.id == move; }) +
      std::erase_if(fetches_, [&](const Fetch& one) { return one.move.id == move; });
  CHECK(gone == 1);
}

// A copy that was asked for goes on; whatever the device or the lane is asked next comes after it.
void RecordTier::DropSpill() {
  if (spills_.front().part.lender) parts_->lane().Join();
  spills_.pop_front();
}

// What the index forgets may be found again: it is the store that decides what goes.
void RecordTier::Remove(TierRecordId record) { known_.Forget(record); }

void RecordTier::Reset(const NamespaceKey* key) {
  if (key == nullptr) return store_->Forget(nullptr);
  for (const PathId& space : RootsOf(*key)) store_->Forget(&space);
}

Tier::News RecordTier::Poll(When when) {
  News news;
  BeginPace(when);
  HearStore(&news);
  CopyIn(&news);
  CopyOut(&news);
  return news;
}

// Where this machine's cores compute the steps, the thread that writes takes them away.
void RecordTier::BeginPace(When when) {
  pace_.Begin(when);
  const int64_t written_ns = store_->writer_ns();
  if (!parts_->lane().beside()) pace_.Charge(written_ns - charged_ns_);
  charged_ns_ = written_ns;
}

void RecordTier::HearStore(News* news) {
  RecordStore::News heard = store_->Poll();
  // Of one that was cancelled after its last part nobody wants to know: it is there, and found.
  const bool ours = !spills_.empty() && spills_.front().draft && !store_->storing();
  if (heard.store_ended && ours) {
    const Spill& spill = spills_.front();
    if (heard.stored)
      known_.Renew(spill.move.records.front().id,
                   {*heard.stored, spill.move.records.front().position});
    news->done.push_back({.id = spill.move.id,
                          .ok = heard.stored.has_value(),
                          .bytes = spill.bytes,
                          .ns = clock_.NowNs() - spill.begun_ns});
    DropSpill();
  }
  news->answered = std::move(heard.looked);
  news->more = heard.more;
  for (RecordStore::Fetched& fetched : heard.fetched) {
    const auto fetch = std::find_if(fetches_.begin(), fetches_.end(),
                                    [&](const Fetch& one) { return one.ticket == fetched.ticket; });
    if (fetch == fetches_.end()) continue;  // cancelled
    fetch->failed = !fetched.status.ok();
    fetch->bytes = fetched.bytes.size();
    fetch->came = std::move(fetched);
  }
  for (const RecordId gone : heard.gone) {
    const std::vector<TierRecordId> lost = known_.Lose(gone);
    news->lost.insert(news->lost.end(), lost.begin(), lost.end());
  }
}

// One part at a time, if the disk has room for it.
void RecordTier::CopyOut(News* news) {
  const bool beside = parts_->lane().beside();
  while (!spills_.empty()) {
    Spill& spill = spills_.front();
    if (!spill.draft) {
      if (!store_->settled()) return;  // one that was cancelled is still being written
      if (!beside && !pace_.MayCopy()) return;
      const PathId root = RootOf(*spill.move.key);
      if (!spill.path.Advance(root, spill.move.tokens, &pace_, beside)) return;
      if (store_->Confirms(*spill.path, spill.move.tokens)) return;
      bool stored = false, begun = false;
      const auto begin = [&] { begun = BeginSpill(&spill, &stored); };
      beside ? begin() : pace_.Spend(begin);
      if (begun) continue;
      news->done.push_back({.id = spill.move.id, .ok = stored});
      spills_.pop_front();
      continue;
    }
    HandOver(&spill);
    TakePart(&spill);
    CopyPart(&spill);
    HandOver(&spill);  // where copies go on beside the steps it comes later
    return;
  }
}

// Whether it has begun. If not, it may be there already: from an earlier life, say.
bool RecordTier::BeginSpill(Spill* spill, bool* stored) {
  const Move& move = spill->move;
  const RecordHead& head = move.records.front();
  const PromptPath& path = *spill->path;
  const auto deepest = store_->Deepest(path, head.position);
  *stored = deepest && deepest->position == head.position && store_->IsFresh(path, head.position);
  if (*stored) known_.Renew(head.id, *deepest);
  if (*stored) return false;
  spill->draft = store_->BeginStore(path, {.position = head.position,
                                           .shape = shape_,
                                           .model = store_->NamespaceOf(DigestOf(*move.key), ""),
                                           .reason = static_cast<uint32_t>(head.reason),
                                           .first_block = move.first_block,
                                           .alone = !head.parent.valid(),
                                           .passed = move.passed});
  return spill->draft.has_value();
}

// A part that has come out of memory is to be written.
void RecordTier::HandOver(Spill* spill) {
  if (!spill->part.lender || spill->copied < spill->part.bytes.size()) return;
  if (!store_->storing() || !parts_->lane().Reached(spill->mark)) return;
  spill->bytes += spill->part.bytes.size();
  store_->AddPart(std::exchange(spill->part, {}));
}

// Memory for the next part, if the disk has room for it.
void RecordTier::TakePart(Spill* spill) {
  const std::vector<RecordLayout::Part>& all = spill->draft->layout.parts();
  if (spill->part.lender || !store_->storing() || spill->next == all.size()) return;
  const size_t bytes = all[spill->next].bytes;
  if (store_->HasRoom(bytes)) spill->part = parts_->Take(bytes);
  if (!spill->part.lender) return;
  spill->copied = 0;
  ++spill->next;
}

// Asks for copies of the part: all of it where they go on beside the steps.
void RecordTier::CopyPart(Spill* spill) {
  if (!spill->part.lender || spill->copied == spill->part.bytes.size()) return;
  const RecordLayout::Part& part = spill->draft->layout.parts()[spill->next - 1];
  HostLane& lane = parts_->lane();
  const bool paced = !lane.beside() || (part.block_count == 0 && packing_.rounded());
  lane.Follow();
  while (spill->copied < part.bytes && (!paced || pace_.MayCopy())) {
    const size_t left = part.bytes - spill->copied;
    const size_t bytes = paced ? std::min(left, CopyPace::kPieceBytes) : left;
    const auto copy = [&] { CopyPiece(*spill, part, spill->copied, bytes); };
    paced ? pace_.Spend(copy) : copy();
    spill->copied += bytes;
  }
  spill->mark = lane.Mark();
}

// Bytes of a part from an offset on.
void RecordTier::CopyPiece(const Spill& spill, const RecordLayout::Part& part, size_t offset,
                           size_t bytes) {
  const auto to = spill.part.bytes.subspan(offset, bytes);
  if (part.block_count == 0) {
    const DevicePtr<const std::byte> state = memory_.state(spill.move.state);
    const size_t at = part.state_offset + offset;
    if (packing_.rounded()) return packing_.Read(*device_, state, at, to);
    return parts_->lane().Out(to.data(), state + static_cast<int64_t>(at), bytes);
  }
  const size_t first = part.first_block - static_cast<size_t>(spill.move.first_block);
  for (size_t done = 0; done < bytes;) {
    const size_t block = (offset + done) / shape_.block_bytes;
    const size_t within = (offset + done) % shape_.block_bytes;
    const size_t some = std::min(bytes - done, shape_.block_bytes - within);
    const DevicePtr<const std::byte> from = memory_.block(spill.move.blocks[first + block]);
    parts_->lane().Out(to.data() + done, from + static_cast<int64_t>(within), some);
    done += some;
  }
}

void RecordTier::CopyIn(News* news) {
  size_t bytes_left = device_->copies_by_caller() ? kBesideBytes : kCopyInBytes;
  std::erase_if(fetches_, [&](Fetch& fetch) {
    const bool done = fetch.failed || (fetch.came && CopySome(&fetch, &bytes_left));
    if (!done) return false;
    news->done.push_back({.id = fetch.move.id,
                          .ok = !fetch.failed,
                          .bytes = fetch.came ? fetch.bytes : 0,
                          .ns = clock_.NowNs() - fetch.begun_ns});
    return true;
  });
}

// Another thread copies it in: nobody else touches that memory before the move ends.
void RecordTier::CopyBeside(Fetch* fetch) {
  fetch->arrival = std::make_shared<Arrival>();
  fetch->arrival->move = fetch->move;
  fetch->arrival->came = std::move(*fetch->came);
  copier_.Post([this, arrival = fetch->arrival] {
    if (!arrival->chore.Begin()) return;
    Fill(*arrival);
    arrival->chore.End();
  });
}

void RecordTier::Fill(const Arrival& arrival) const {
  const std::byte* from = arrival.came.bytes.data();
  for (const BlockId block : arrival.move.blocks) {
    if (arrival.chore.off()) return;
    device_->Upload(memory_.block(block), from, shape_.block_bytes);
    from += shape_.block_bytes;
  }
  if (!arrival.move.state.valid()) return;
  const DevicePtr<std::byte> state = memory_.state(arrival.move.state);
  for (size_t at = 0; at < shape_.state_bytes && !arrival.chore.off(); at += kPieceBytes) {
    packing_.Write(*device_, state, at,
                   {from + at, std::min(kPieceBytes, shape_.state_bytes - at)});
  }
}

// Whether all of it is in memory now.
bool RecordTier::CopySome(Fetch* fetch, size_t* bytes_left) {
  if (fetch->arrival) return fetch->arrival->chore.done();
  if (device_->copies_by_caller() && fetch->bytes >= kBesideBytes) {
    CopyBeside(fetch);
    return false;
  }
  const std::vector<BlockId>& blocks = fetch->move.blocks;
  const std::byte* bytes = fetch->came->bytes.data();
  for (; fetch->next < blocks.size() && *bytes_left > 0; ++fetch->next) {
    device_->Upload(memory_.block(blocks[fetch->next]), bytes + fetch->next * shape_.block_bytes,
                    shape_.block_bytes);
    *bytes_left -= std::min(*bytes_left, shape_.block_bytes);
  }
  if (fetch->next < blocks.size()) return false;
  if (fetch->move.state.valid()) {
    packing_.Write(*device_, memory_.state(fetch->move.state), 0,
                   {bytes + blocks.size() * shape_.block_bytes, shape_.state_bytes});
  }
  return true;
}

}  // namespace reprise
