// SPDX-License-Identifier: Apache-2.0
#include "cache/policy/scan_guard.h"

#include <algorithm>
#include <cmath>

namespace reprise {
namespace {

constexpr size_t kBytesPerSubject = 1'000'000;  // of the budget: a ten-thousandth is bookkeeping
constexpr size_t kSubjectsMin = 16;
constexpr size_t kSubjectsMax = 1 << 16;

}  // namespace

ScanGuard::ScanGuard(size_t budget_bytes)
    : capacity_(budget_bytes),
      warm_max_(budget_bytes / 10 * 9),
      item_max_(static_cast<uint32_t>(
          std::clamp(budget_bytes / kBytesPerSubject, kSubjectsMin, kSubjectsMax))) {}

bool ScanGuard::Stands(const Subject& subject) const {
  return subject.birth != 0 && subject.slot < items_.size() &&
         items_[subject.slot].birth == subject.birth;
}

ScanGuard::Links& ScanGuard::LinksOf(Item& item, ListId list) {
  return list == kRecent || list == kPast ? item.by_age : item.by_place;
}

void ScanGuard::PushNewest(ListId list, uint32_t slot) {
  List& in = lists_[list];
  Item& item = items_[slot];
  LinksOf(item, list) = {in.newest, kNone};
  (in.newest == kNone ? in.oldest : LinksOf(items_[in.newest], list).newer) = slot;
  in.newest = slot;
  in.bytes += item.bytes;
  (list == kRecent || list == kPast ? item.age : item.place) = list;
}

void ScanGuard::Unlink(ListId list, uint32_t slot) {
  if (list == kNowhere) return;
  List& in = lists_[list];
  Item& item = items_[slot];
  const Links links = LinksOf(item, list);
  (links.older == kNone ? in.oldest : LinksOf(items_[links.older], list).newer) = links.newer;
  (links.newer == kNone ? in.newest : LinksOf(items_[links.newer], list).older) = links.older;
  in.bytes -= item.bytes;
  (list == kRecent || list == kPast ? item.age : item.place) = kNowhere;
}

// In a free slot, or in that of the subject that was used longest ago.
ScanGuard::Subject ScanGuard::Add(int32_t known_tokens) {
  auto slot = static_cast<uint32_t>(items_.size());
  if (slot < item_max_) {
    items_.push_back(Item());
  } else {
    slot = lists_[lists_[kPast].oldest == kNone ? kRecent : kPast].oldest;
    Unlink(items_[slot].place, slot);
    Unlink(items_[slot].age, slot);
    items_[slot] = Item();
  }
  if (++births_ == 0) ++births_;
  items_[slot].birth = births_;
  items_[slot].shared_tokens = known_tokens;
  return {slot, births_};
}

// Which cache would have served the subject, which has come back.
void ScanGuard::Judge(const Item& item, int32_t known_tokens) {
  constexpr double kMemory = 512;     // returns that the sums look back on
  constexpr double kReturnsMin = 16;  // fewer say little
  if (++returns_ > kMemory) {
    for (double* sum : {&returns_, &tokens_, &found_by_age_, &found_by_return_}) *sum /= 2;
  }
  const double tokens = std::max(0, known_tokens - item.shared_tokens);
  tokens_ += tokens;
  if (item.age == kRecent) found_by_age_ += tokens;
  if (item.place != kNowhere) found_by_return_ += tokens;
  if (returns_ < kReturnsMin) return;
  if (resists_) {
    resists_ = found_by_return_ > 1.1 * found_by_age_;
  } else {
    resists_ =
        found_by_return_ > 1.25 * found_by_age_ + 0.05 * tokens_ || found_by_age_ < 0.02 * tokens_;
  }
}

void ScanGuard::UseByAge(uint32_t slot) {
  PushNewest(kRecent, slot);
  while (lists_[kRecent].bytes > capacity_) {
    const uint32_t oldest = lists_[kRecent].oldest;
    Unlink(kRecent, oldest);
    PushNewest(kPast, oldest);
  }
}

void ScanGuard::UseByReturn(uint32_t slot, bool came_back) {
  Item& item = items_[slot];
  List& warm = lists_[kWarm];
  List& cold = lists_[kCold];
  const bool warms = came_back && item.bytes <= warm_max_ &&
                     (warm.bytes + item.bytes <= warm_max_ || item.used > items_[warm.oldest].used);
  PushNewest(warms ? kWarm : kCold, slot);
  item.used = ++clock_;
  while (warm.bytes > warm_max_) {
    const uint32_t oldest = warm.oldest;
    Unlink(kWarm, oldest);
    PushNewest(kCold, oldest);
  }
  while (warm.bytes + cold.bytes > capacity_) Unlink(kCold, cold.oldest);
}

bool ScanGuard::Note(Subject* subject, size_t more_bytes, int32_t known_tokens) {
  const bool came_back = Stands(*subject);
  if (!came_back) *subject = Add(known_tokens);
  const uint32_t slot = subject->slot;
  Item& item = items_[slot];
  if (came_back) Judge(item, known_tokens);
  const bool was_warm = item.place == kWarm;
  Unlink(item.place, slot);
  Unlink(item.age, slot);
  item.bytes += more_bytes;
  UseByAge(slot);
  if (was_warm) item.used = clock_;  // it stays warm, if it fits
  UseByReturn(slot, came_back);
  return items_[slot].place != kWarm;
}

Status ScanGuard::CheckInvariants() const {
  std::array<size_t, 4> bytes{}, counts{};
  for (const Item& item : items_) {
    if (item.age == kNowhere) return Internal("a subject has no age");
    bytes[item.age] += item.bytes;
    ++counts[item.age];
    if (item.place == kNowhere) continue;
    bytes[item.place] += item.bytes;
    ++counts[item.place];
  }
  for (const ListId list : {kRecent, kPast, kWarm, kCold}) {
    const bool by_age = list == kRecent || list == kPast;
    size_t count = 0;
    for (uint32_t slot = lists_[list].oldest; slot != kNone; ++count) {
      slot = by_age ? items_[slot].by_age.newer : items_[slot].by_place.newer;
      if (count > items_.size()) return Internal("a list of subjects goes round");
    }
    if (count != counts[list] || bytes[list] != lists_[list].bytes) {
      return Internal("a list of subjects is counted wrongly");
    }
  }
  if (lists_[kRecent].bytes > capacity_ || lists_[kWarm].bytes > warm_max_ ||
      lists_[kWarm].bytes + lists_[kCold].bytes > capacity_) {
    return Internal("a cache of subjects holds more than it may");
  }
  return OkStatus();
}

}  // namespace reprise
