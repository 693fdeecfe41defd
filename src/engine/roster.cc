// SPDX-License-Identifier: Apache-2.0
#include "engine/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/near.h"

namespace reprise {
namespace {

// A tenant that has gone counts as near for so long: it may come back.
constexpr int64_t kLatelyMs = 10'000;
// Of tenants that have gone no more are known.
constexpr size_t kTenantsMax = 4096;

std::unique_ptr<Sequence> Take(std::vector<std::unique_ptr<Sequence>>* from, Sequence& sequence) {
  const auto at = std::find_if(from->begin(), from->end(),
                               [&](const auto& other) { return other.get() == &sequence; });
  CHECK(at != from->end());
  std::unique_ptr<Sequence> taken = std::move(*at);
  from->erase(at);
  return taken;
}

// Calls visit(sequence) for all, each brought near before.
template <typename Visit>
void ForEach(std::span<const std::unique_ptr<Sequence>> sequences, const Visit& visit) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i + kNear < sequences.size()) sequences[i + kNear]->Prefetch();
    visit(*sequences[i]);
  }
}

}  // namespace

void Roster::Add(std::unique_ptr<Sequence> sequence) {
  const GenerateRequest& request = sequence->request;
  std::shared_ptr<TenantLoad>& tenant = tenants_[request.tenant];
  if (!tenant) tenant = std::make_shared<TenantLoad>();
  tenant->weight = std::max(1, request.tenant_weight);
  sequence->turn = std::max(turn_, tenant->next_turn);
  tenant->next_turn = sequence->turn + 1.0 / tenant->weight;
  sequence->tenant = tenant;
  waiting_.push_back(std::move(sequence));
  Count(*tenant, 1, 0);
}

void Roster::Start(Sequence& sequence) {
  CHECK(!full());
  turn_ = std::max(turn_, sequence.turn);
  sequence.awaited.reset();
  running_.push_back(Take(&waiting_, sequence));
  Count(*sequence.tenant, -1, 1);
}

void Roster::SendBack(Sequence& sequence) {
  sequence.lent_priority = sequence.request.priority;
  waiting_.push_back(Take(&running_, sequence));
  Count(*sequence.tenant, 1, -1);
}

void Roster::RemoveFinished() {
  const auto remove = [this](std::vector<std::unique_ptr<Sequence>>* from, int waiting,
                             int running) {
    return std::erase_if(*from, [&](const std::unique_ptr<Sequence>& one) {
      if (!one->finished) return false;
      one->tenant->left_ms = now_ms_;
      Count(*one->tenant, waiting, running);
      return true;
    });
  };
  if (remove(&waiting_, -1, 0) + remove(&running_, 0, -1) == 0) return;
  const int64_t since = tenants_.size() > kTenantsMax ? now_ms_ : now_ms_ - kLatelyMs;
  std::erase_if(tenants_, [&](const auto& tenant) {
    TenantLoad& load = *tenant.second;
    if (!load.present()) load.next_turn = 0;
    return !load.present() && load.left_ms <= since;
  });
}

// Somebody of the tenant has come, gone or changed places.
void Roster::Count(TenantLoad& tenant, int32_t waiting, int32_t running) {
  ++changes_;
  tenant.waiting += waiting;
  tenant.running += running;
  weights_ = weights_lately_ = 0;
  for (const auto& [name, other] : tenants_) {
    if (other->present()) {
      weights_ += other->weight;
    } else if (other->left_ms + kLatelyMs > now_ms_) {
      weights_lately_ += other->weight;
      lately_until_ms_ = std::max(lately_until_ms_, other->left_ms + kLatelyMs);
    }
  }
}

void Roster::EndWaits() {
  if (!waits_) return;
  const auto flights = Flights();
  for (const auto& sequence : waiting_) {
    if (!sequence->awaited) continue;
    if (const auto at = flights.find(sequence->awaited->lease_id); at != flights.end()) {
      // State is published by blocks, or where a snapshot is taken; that may have been declined.
      const int32_t position = sequence->awaited->position;
      const Lease& lease = at->second->lease;
      if (lease.report().stored_tokens < position && lease.computed() < lease.prompt_tokens() &&
          lease.computed() < position + kBlockTokens) {
        continue;
      }
    }
    sequence->awaited.reset();
    sequence->asked_at = 0;
    ++changes_;
  }
}

void Roster::Lend() {
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(),
                                 [](const auto& one) { return one->awaited.has_value(); });
  if (!std::exchange(waits_, waits) && !waits) return;  // nothing was lent, and nothing is
  for (const auto& sequence : running_) sequence->lent_priority = sequence->request.priority;
  const auto flights = Flights();
  for (const auto& sequence : waiting_) {
    if (!sequence->awaited) continue;
    const auto at = flights.find(sequence->awaited->lease_id);
    if (at == flights.end()) continue;
    int32_t& lent = at->second->lent_priority;
    lent = std::max(lent, sequence->request.priority);
  }
}

// Those that run by the id of their lease; nobody, if nobody is waited for.
std::unordered_map<uint64_t, Sequence*> Roster::Flights() const {
  std::unordered_map<uint64_t, Sequence*> flights;
  if (!waits_) return flights;
  for (const auto& sequence : running_) flights[sequence->lease.id()] = sequence.get();
  return flights;
}

int32_t Roster::ShareOf(const TenantLoad& tenant) const {
  return reprise::ShareOf(running_max_, tenant.weight, weights_);
}

bool Roster::Crowds(const Sequence& sequence) const {
  const TenantLoad& tenant = *sequence.tenant;
  const int64_t lately = now_ms_ < lately_until_ms_ ? weights_lately_ : 0;
  return tenant.running > reprise::ShareOf(running_max_, tenant.weight, weights_ + lately);
}

std::map<std::string, TenantLoad> Roster::QueuedByTenant() const {
  std::map<std::string, TenantLoad> queued;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant->waiting > 0) queued[name] = *tenant;
  }
  return queued;
}

Rank Roster::RankOf(const Sequence& sequence, bool running) const {
  const int32_t others = sequence.tenant->running - (running ? 1 : 0);
  const int32_t priority = sequence.lent_priority;
  return {priority, others >= ShareOf(*sequence.tenant), sequence.turn, sequence.arrival};
}

Sequence* Roster::Next() const {
  Sequence* first = nullptr;
  Rank best;
  ForEach(waiting_, [&](Sequence& sequence) {
    if (sequence.awaited || sequence.finished) return;
    const Rank rank = RankOf(sequence, false);
    if (first != nullptr && !(rank < best)) return;
    first = &sequence;
    best = rank;
  });
  return first;
}

Sequence* Roster::Last() const {
  Sequence* last = nullptr;
  Rank worst;
  ForEach(running_, [&](Sequence& sequence) {
    if (sequence.finished) return;
    const Rank rank = RankOf(sequence, true);
    if (last != nullptr && !(worst < rank)) return;
    last = &sequence;
    worst = rank;
  });
  return last;
}

Sequence* Roster::Yielding(const Sequence& waiting) const {
  Sequence* last = Last();
  if (last == nullptr || !Yields(RankOf(*last, true), RankOf(waiting, false))) return nullptr;
  return last;
}

Sequence* Roster::Surplus() const {
  Sequence* surplus = nullptr;
  const auto load = [](const Sequence& s) {
    return static_cast<double>(s.tenant->waiting) / s.tenant->weight;
  };
  for (const auto& sequence : waiting_) {
    if (!sequence->displaceable() || sequence->finished) continue;
    const bool more =
        surplus == nullptr || load(*sequence) > load(*surplus) ||
        (load(*sequence) == load(*surplus) && RankOf(*surplus, false) < RankOf(*sequence, false));
    if (more) surplus = sequence.get();
  }
  return surplus;
}

std::string Roster::Dump() const {
  std::string out;
  const auto add = [&](const char* what, const Sequence& one, bool running) {
    const Rank rank = RankOf(one, running);
    out += fmt::format(
        "{} {}: priority {}, tenant '{}' ({} of {}), turn {}, sent back {}, {} of {} tokens", what,
        one.arrival, rank.priority, one.request.tenant, one.tenant->running, ShareOf(*one.tenant),
        one.turn, one.preemptions, one.lease.valid() ? one.lease.computed() : 0,
        one.request.prompt.size());
    if (one.awaited) out += fmt::format(", awaits position {}", one.awaited->position);
    out += '\n';
  };
  for (const auto& one : running_) add("runs", *one, true);
  for (const auto& one : waiting_) add("waits", *one, false);
  return out;
}

}  // namespace reprise
