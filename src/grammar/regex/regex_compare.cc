// SPDX-License-Identifier: Apache-2.0
// What languages have in common, and whether they have a text at all.
#include <algorithm>

#include "grammar/regex/regex_pool.h"

namespace reprise::grammar {

bool RegexPool::IsStar(RegexId r) const {
  const Node& node = nodes_[Index(r)];
  return node.kind == Kind::kRepeat && node.b == 0 && node.c == kUnbounded;
}

// x* followed by one byte, or by nothing: what is left of a text when all that was asked of it is
// fulfilled.
bool RegexPool::IsRest(RegexId r) const {
  const Node& node = nodes_[Index(r)];
  if (node.kind != Kind::kConcat) return IsStar(r);
  return IsStar(RegexId{node.a}) && nodes_[node.b].kind == Kind::kBytes;
}

// What may follow a byte, as alternatives that are not put together (Antimirov 1996).
void RegexPool::DeriveParts(RegexId r, uint8_t byte, std::vector<RegexId>* parts) {
  while (Spend(1)) {
    const Node node = nodes_[Index(r)];
    if (node.kind == Kind::kOr) {
      for (uint32_t i = 0; i < node.b; ++i) DeriveParts(children_[node.a + i], byte, parts);
      return;
    }
    if (node.kind != Kind::kConcat) {
      parts->push_back(DeriveNode(r, byte));
      return;
    }
    std::vector<RegexId> heads;
    DeriveParts(RegexId{node.a}, byte, &heads);
    for (const RegexId head : heads) parts->push_back(Concat(head, RegexId{node.b}));
    if (!nodes_[node.a].nullable) return;
    r = RegexId{node.b};
  }
}

// Whether each text of `part` is one of `all`, if that is soon seen; else false.
bool RegexPool::Within(RegexId part, RegexId all) {
  constexpr size_t kPairsMax = 48;
  if (!nodes_[Index(part)].exact || within_busy_) return false;
  const uint64_t key = uint64_t{Index(part)} << 32 | Index(all);
  if (const auto known = within_.find(key); known != within_.end()) return known->second;
  within_busy_ = true;
  std::vector<std::pair<RegexId, RegexId>> pairs = {{part, all}};
  bool within = true;
  std::vector<RegexId> parts;
  for (size_t at = 0; at < pairs.size() && within; ++at) {
    const auto [a, b] = pairs[at];
    const RegexId both[] = {a, b};
    const std::span<const uint8_t> groups = Groups(GroupClasses(both));
    within = pairs.size() <= kPairsMax && (!Nullable(a) || Nullable(b));
    std::vector<bool> done(groups.size(), false);
    for (size_t i = 0; i < groups.size() && within; ++i) {
      if (done[groups[i]]) continue;
      done[groups[i]] = true;
      parts.clear();
      DeriveParts(a, representatives_[i], &parts);
      const RegexId rest = DeriveNode(b, representatives_[i]);
      for (const RegexId one : parts) {
        if (one == RegexId::kNothing || one == rest) continue;
        within &= rest != RegexId::kNothing;
        const std::pair to{one, rest};
        if (std::ranges::find(pairs, to) == pairs.end()) pairs.push_back(to);
      }
    }
  }
  within_busy_ = false;
  within &= !exhausted_;
  within_.emplace(key, within);
  if (within) {
    // What was seen on the way is so, too.
    for (const auto& [a, b] : pairs) within_[uint64_t{Index(a)} << 32 | Index(b)] = true;
  }
  return within;
}

// Drops alternatives that another one has already: of x*(abx*" | ") nothing is left but x*".
void RegexPool::Absorb(std::vector<RegexId>* parts) {
  constexpr size_t kPartsMax = 16;
  if (parts->size() > kPartsMax) return;
  std::vector<RegexId> open;
  for (const RegexId part : *parts) {
    const Node node = nodes_[Index(part)];
    if (node.kind != Kind::kConcat || nodes_[node.b].kind != Kind::kOr ||
        nodes_[node.b].b > kPartsMax || !IsStar(RegexId{node.a})) {
      open.push_back(part);
      continue;
    }
    const auto children = Children(nodes_[node.b]);
    for (const RegexId tail : std::vector(children.begin(), children.end())) {
      open.push_back(Concat(RegexId{node.a}, tail));
    }
  }
  std::vector<RegexId> rests;
  for (const RegexId part : open) {
    if (IsRest(part)) rests.push_back(part);
  }
  if (rests.empty() || exhausted_) return;
  std::erase_if(open, [&](RegexId part) {
    return std::ranges::any_of(rests, [&](RegexId rest) {
      return rest != part && (rest < part || !IsRest(part)) && Within(part, rest);
    });
  });
  *parts = std::move(open);
}

// Whether an intersection has no text since one part excludes all that another has.
bool RegexPool::Excludes(std::span<const RegexId> parts) {
  const auto excluded = [&](RegexId part) {
    const Node& node = nodes_[Index(part)];
    return node.kind == Kind::kNot ? RegexId{node.a} : RegexId::kNothing;
  };
  for (const RegexId part : parts) {
    const RegexId rest = excluded(part);
    if (rest == RegexId::kNothing || !IsRest(rest)) continue;
    for (const RegexId other : parts) {
      if (other == rest) return true;
      if (excluded(other) == RegexId::kNothing && Within(other, rest)) return true;
    }
  }
  return false;
}

bool RegexPool::IsNothing(RegexId r) {
  const Node& node = nodes_[Index(r)];
  if (r == RegexId::kNothing) return true;
  if (node.nullable || (node.exact && alphabet_ == ~ByteSet())) return false;
  if (liveness_[Index(r)] == kUnknown) Search(r);
  return liveness_[Index(r)] == kDead;
}

bool RegexPool::CertainlyAlive(RegexId r) const {
  const Node& node = nodes_[Index(r)];
  return node.nullable || liveness_[Index(r)] == kAlive ||
         (node.exact && r != RegexId::kNothing && alphabet_ == ~ByteSet());
}

// Expressions that are searched one after the other are alike, and so is what completes them.
bool RegexPool::TryWitnesses(RegexId r) {
  for (size_t i = 0; i < witnesses_.size(); ++i) {
    const std::string& witness = witnesses_[i];
    for (size_t skip = 0; skip < witness.size(); ++skip) {
      std::vector<RegexId> path = {r};
      bool alive = false;
      for (size_t at = skip; at < witness.size() && !alive && Spend(1); ++at) {
        const RegexId to = DeriveNode(path.back(), static_cast<uint8_t>(witness[at]));
        if (to == RegexId::kNothing || liveness_[Index(to)] == kDead) break;
        alive = CertainlyAlive(to);
        path.push_back(to);
      }
      if (!alive) continue;
      for (const RegexId one : path) liveness_[Index(one)] = kAlive;
      std::rotate(witnesses_.begin(), witnesses_.begin() + static_cast<std::ptrdiff_t>(i),
                  witnesses_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return true;
    }
  }
  return false;
}

// Breadth first through the derivatives to one that has the empty text. Marks all that lead there,
// or, if there is none, all that were seen.
bool RegexPool::Search(RegexId r) {
  constexpr size_t kWitnessesMax = 8;
  if (TryWitnesses(r)) return true;
  struct Visit {
    RegexId regex;
    size_t parent;
    uint8_t byte;  // by which the parent led here
  };
  std::vector<Visit> visits = {{r, 0, 0}};
  std::vector<bool> writable(representatives_.size(), false);
  for (size_t byte = 0; byte < 256; ++byte) {
    // A class counts if any of its bytes can be written.
    if (alphabet_.Has(static_cast<uint8_t>(byte))) writable[class_of_[byte]] = true;
  }
  liveness_[Index(r)] = kDead;  // seen; revised below
  for (size_t at = 0; at < visits.size() && Spend(1); ++at) {
    const std::span<const uint8_t> groups = Groups(GroupClasses({&visits[at].regex, 1}));
    std::vector<bool> done(groups.size(), false);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!writable[i] || done[groups[i]]) continue;
      done[groups[i]] = true;
      const uint8_t byte = representatives_[i];
      const RegexId to = DeriveNode(visits[at].regex, byte);
      if (to == RegexId::kNothing) continue;
      if (CertainlyAlive(to)) {
        for (const Visit& visit : visits) liveness_[Index(visit.regex)] = kUnknown;
        std::string witness(1, static_cast<char>(byte));
        for (size_t up = at;; up = visits[up].parent) {
          liveness_[Index(visits[up].regex)] = kAlive;
          if (up == 0) break;
          witness.insert(witness.begin(), static_cast<char>(visits[up].byte));
        }
        if (witnesses_.size() == kWitnessesMax) witnesses_.pop_back();
        witnesses_.insert(witnesses_.begin(), std::move(witness));
        return true;
      }
      if (liveness_[Index(to)] == kDead) continue;
      liveness_[Index(to)] = kDead;
      visits.push_back({to, at, byte});
    }
  }
  return false;
}

}  // namespace reprise::grammar
