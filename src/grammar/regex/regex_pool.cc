// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex/regex_pool.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::grammar {
namespace {

constexpr uint8_t kUnknown = 0;
constexpr uint8_t kAlive = 1;
constexpr uint8_t kDead = 2;

// Neither factor is ever 0 by what a client chooses.
uint64_t Combine(uint64_t a, uint64_t b) {
  return FoldedMultiply(a ^ 0x9e3779b97f4a7c15ull, b ^ HashSeed());
}

}  // namespace

RegexPool::RegexPool(const Budget& budget) : budget_(budget) {
  Intern({.kind = Kind::kNothing});
  Intern({.kind = Kind::kEmpty, .nullable = true});
}

size_t RegexPool::bytes() const {
  return nodes_.size() * (sizeof(Node) + 1) + children_.size() * sizeof(RegexId) +
         sets_.size() * sizeof(ByteSet) + derivatives_.size() * sizeof(Derivative) +
         node_index_.bytes() + derivative_index_.bytes();
}

bool RegexPool::Spend(uint64_t steps) {
  steps_ += steps;
  // The tables double when they grow: twice what is there now bounds what is there next.
  if (steps_ > budget_.steps || ((steps_ & 255) < steps && bytes() > budget_.bytes)) {
    exhausted_ = true;
  }
  return !exhausted_;
}

RegexId RegexPool::Intern(Node node) {
  if (!Spend(1)) return RegexId::kNothing;
  const uint64_t hash = Combine(
      Combine(HashSeed() ^ static_cast<uint64_t>(node.kind), uint64_t{node.a} << 32 | node.b),
      Combine(HashSeed() ^ node.c, node.rest));
  const uint32_t found = node_index_.Find(hash, [&](uint32_t id) {
    const Node& other = nodes_[id];
    return other.kind == node.kind && other.a == node.a && other.b == node.b && other.c == node.c &&
           other.rest == node.rest;
  });
  if (found != InternIndex::kNone) return RegexId{found};
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(node);
  liveness_.push_back(kUnknown);
  node_index_.Insert(hash, id);
  return RegexId{id};
}

// The hash of an n-ary node is that of its children, whose place in children_ is not its identity.
RegexId RegexPool::InternNary(Kind kind, std::span<const RegexId> parts) {
  if (!Spend(parts.size())) return RegexId::kNothing;
  const uint64_t hash = HashSpan(parts) ^ static_cast<uint64_t>(kind);
  const uint32_t found = node_index_.Find(hash, [&](uint32_t id) {
    const Node& other = nodes_[id];
    return other.kind == kind && std::ranges::equal(Children(other), parts);
  });
  if (found != InternIndex::kNone) return RegexId{found};
  Node node{.kind = kind,
            .nullable = kind == Kind::kAnd,
            .exact = kind == Kind::kOr,
            .finite = kind == Kind::kOr,
            .a = static_cast<uint32_t>(children_.size()),
            .b = static_cast<uint32_t>(parts.size())};
  for (const RegexId part : parts) {
    if (kind == Kind::kOr) {
      node.nullable |= Nullable(part);
      node.exact &= nodes_[Index(part)].exact;
      node.finite &= nodes_[Index(part)].finite;
    } else {
      node.nullable &= Nullable(part);
      node.finite |= nodes_[Index(part)].finite;
    }
  }
  children_.insert(children_.end(), parts.begin(), parts.end());
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(node);
  liveness_.push_back(kUnknown);
  node_index_.Insert(hash, id);
  return RegexId{id};
}

uint32_t RegexPool::SetIndex(const ByteSet& set) {
  const uint64_t hash = HashSpan(std::span<const uint64_t>(set.words()));
  const uint32_t found = set_index_.Find(hash, [&](uint32_t id) { return sets_[id] == set; });
  if (found != InternIndex::kNone) return found;
  const auto id = static_cast<uint32_t>(sets_.size());
  sets_.push_back(set);
  set_index_.Insert(hash, id);
  SplitClasses(set);
  return id;
}

void RegexPool::SplitClasses(const ByteSet& set) {
  // The part of each class inside of `set` becomes a class of its own, unless it is all of it.
  std::array<bool, 256> inside = {};
  std::array<bool, 256> outside = {};
  for (int byte = 0; byte < 256; ++byte) {
    (set.Has(static_cast<uint8_t>(byte)) ? inside : outside)[class_of_[static_cast<size_t>(byte)]] =
        true;
  }
  std::array<int, 256> moved;
  moved.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) {
    const size_t old = class_of_[byte];
    if (!set.Has(static_cast<uint8_t>(byte)) || !inside[old] || !outside[old]) continue;
    if (moved[old] < 0) {
      moved[old] = static_cast<int>(representatives_.size());
      representatives_.push_back(static_cast<uint8_t>(byte));
    }
    class_of_[byte] = static_cast<uint8_t>(moved[old]);
  }
  // What stayed may have lost its lowest byte.
  for (size_t byte = 256; byte-- > 0;) {
    representatives_[class_of_[byte]] = static_cast<uint8_t>(byte);
  }
}

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.empty()) return RegexId::kNothing;
  return Intern({.kind = Kind::kBytes, .a = SetIndex(set)});
}

RegexId RegexPool::Literal(std::string_view text) {
  RegexId tail = RegexId::kEmpty;
  for (size_t i = text.size(); i-- > 0;) tail = Concat(Bytes(ByteSet::Of(text[i])), tail);
  return tail;
}

RegexId RegexPool::LiteralSet(std::vector<std::string_view> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return LiteralTrie(texts, 0);
}

// `sorted` share their first `depth` bytes. Texts that are longer than the recursion may be deep
// continue as plain literals.
RegexId RegexPool::LiteralTrie(std::span<const std::string_view> sorted, size_t depth) {
  constexpr size_t kDepthMax = 512;
  if (sorted.size() == 1) return Literal(sorted[0].substr(depth));
  std::vector<RegexId> parts;
  size_t begin = 0;
  if (!sorted.empty() && sorted[0].size() == depth) {
    parts.push_back(RegexId::kEmpty);
    begin = 1;
  }
  while (begin < sorted.size()) {
    const char byte = sorted[begin][depth];
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end][depth] == byte) ++end;
    const auto group = sorted.subspan(begin, end - begin);
    RegexId tail = RegexId::kNothing;
    if (depth < kDepthMax) {
      tail = LiteralTrie(group, depth + 1);
    } else {
      std::vector<RegexId> tails;
      for (const std::string_view text : group) tails.push_back(Literal(text.substr(depth + 1)));
      tail = Or(std::move(tails));
    }
    parts.push_back(Concat(Bytes(ByteSet::Of(byte)), tail));
    begin = end;
  }
  return Or(std::move(parts));
}

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == RegexId::kNothing || second == RegexId::kNothing) return RegexId::kNothing;
  if (first == RegexId::kEmpty) return second;
  if (second == RegexId::kEmpty) return first;
  // To the right: (xy)z is x(yz).
  std::vector<RegexId> heads;
  while (nodes_[Index(first)].kind == Kind::kConcat) {
    heads.push_back(RegexId{nodes_[Index(first)].a});
    first = RegexId{nodes_[Index(first)].b};
  }
  heads.push_back(first);
  RegexId tail = second;
  for (size_t i = heads.size(); i-- > 0 && !exhausted_;) {
    const Node& head = nodes_[Index(heads[i])];
    const Node& rest = nodes_[Index(tail)];
    tail = Intern({.kind = Kind::kConcat,
                   .nullable = head.nullable && rest.nullable,
                   .exact = head.exact && rest.exact,
                   .finite = head.finite && rest.finite,
                   .a = Index(heads[i]),
                   .b = Index(tail)});
  }
  return tail;
}

RegexId RegexPool::Concat(std::span<const RegexId> parts) {
  RegexId tail = RegexId::kEmpty;
  for (size_t i = parts.size(); i-- > 0;) tail = Concat(parts[i], tail);
  return tail;
}

void RegexPool::Flatten(Kind kind, std::span<const RegexId> parts,
                        std::vector<RegexId>* flat) const {
  for (const RegexId part : parts) {
    const Node& node = nodes_[Index(part)];
    if (node.kind == kind) {
      // Children of an n-ary node are never of its own kind.
      const auto children = Children(node);
      flat->insert(flat->end(), children.begin(), children.end());
    } else {
      flat->push_back(part);
    }
  }
}

std::vector<RegexId> RegexPool::JoinBytes(std::vector<RegexId> parts, bool intersect) {
  ByteSet joined = intersect ? ~ByteSet() : ByteSet();
  size_t count = 0;
  for (const RegexId part : parts) {
    const Node& node = nodes_[Index(part)];
    if (node.kind != Kind::kBytes) continue;
    joined = intersect ? joined & sets_[node.a] : joined | sets_[node.a];
    ++count;
  }
  if (count < 2) return parts;
  std::erase_if(parts, [&](RegexId part) { return nodes_[Index(part)].kind == Kind::kBytes; });
  parts.push_back(Bytes(joined));
  return parts;
}

// xa | xb is x(a | b).
std::vector<RegexId> RegexPool::FactorHeads(std::vector<RegexId> parts) {
  std::vector<std::pair<RegexId, RegexId>> concats;  // head, tail
  for (const RegexId part : parts) {
    const Node& node = nodes_[Index(part)];
    if (node.kind == Kind::kConcat) concats.push_back({RegexId{node.a}, RegexId{node.b}});
  }
  if (concats.size() < 2) return parts;
  std::sort(concats.begin(), concats.end());
  bool shared = false;
  for (size_t i = 1; i < concats.size(); ++i) shared |= concats[i].first == concats[i - 1].first;
  if (!shared) return parts;
  std::erase_if(parts, [&](RegexId part) { return nodes_[Index(part)].kind == Kind::kConcat; });
  for (size_t begin = 0; begin < concats.size();) {
    std::vector<RegexId> tails;
    size_t end = begin;
    for (; end < concats.size() && concats[end].first == concats[begin].first; ++end) {
      tails.push_back(concats[end].second);
    }
    parts.push_back(Concat(concats[begin].first, Or(std::move(tails))));
    begin = end;
  }
  return parts;
}

RegexId RegexPool::Or(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  Flatten(Kind::kOr, parts, &flat);
  if (!Spend(flat.size())) return RegexId::kNothing;
  std::erase(flat, RegexId::kNothing);
  flat = JoinBytes(std::move(flat), /*intersect=*/false);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  flat = FactorHeads(std::move(flat));
  for (const RegexId part : flat) {
    const Node& node = nodes_[Index(part)];
    if (node.kind == Kind::kNot && node.a == Index(RegexId::kNothing)) return part;
  }
  // The empty text is said already by a part that has it.
  const auto has_empty = [&](RegexId part) { return part != RegexId::kEmpty && Nullable(part); };
  if (std::ranges::any_of(flat, has_empty)) std::erase(flat, RegexId::kEmpty);
  std::sort(flat.begin(), flat.end());
  if (flat.empty()) return RegexId::kNothing;
  if (flat.size() == 1) return flat[0];
  return InternNary(Kind::kOr, flat);
}

RegexId RegexPool::And(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  Flatten(Kind::kAnd, parts, &flat);
  if (!Spend(flat.size())) return RegexId::kNothing;
  std::erase(flat, AnyText());
  flat = JoinBytes(std::move(flat), /*intersect=*/true);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return AnyText();
  if (flat[0] == RegexId::kNothing) return RegexId::kNothing;
  if (flat.size() == 1) return flat[0];
  if (flat[0] == RegexId::kEmpty) {
    const bool all = std::ranges::all_of(flat, [&](RegexId part) { return Nullable(part); });
    return all ? RegexId::kEmpty : RegexId::kNothing;
  }
  return InternNary(Kind::kAnd, flat);
}

RegexId RegexPool::Not(RegexId r) {
  const Node& node = nodes_[Index(r)];
  if (node.kind == Kind::kNot) return RegexId{node.a};
  return Intern({.kind = Kind::kNot,
                 .nullable = !node.nullable,
                 .exact = false,
                 .finite = false,
                 .a = Index(r)});
}

RegexId RegexPool::Repeat(RegexId r, uint32_t min, uint32_t max) {
  CHECK(min <= max);
  if (r == RegexId::kEmpty || max == 0) return RegexId::kEmpty;
  if (r == RegexId::kNothing) return min == 0 ? RegexId::kEmpty : RegexId::kNothing;
  if (Nullable(r)) min = 0;
  if (min == 1 && max == 1) return r;
  const Node& node = nodes_[Index(r)];
  if (node.kind == Kind::kRepeat && node.b == 0 && node.c == kUnbounded) return r;
  return Intern({.kind = Kind::kRepeat,
                 .nullable = min == 0,
                 .exact = node.exact,
                 .finite = node.finite && max != kUnbounded,
                 .a = Index(r),
                 .b = min,
                 .c = max});
}

RegexId RegexPool::Multiple(uint64_t modulus, uint32_t scale) {
  CHECK(modulus > 0 && modulus < uint64_t{1} << 56 && scale < 64);
  const MultipleRule rule{modulus, scale};
  auto at = std::find(rules_.begin(), rules_.end(), rule);
  if (at == rules_.end()) at = rules_.insert(rules_.end(), rule);
  SplitClasses(ByteSet::Of('.'));
  SplitClasses(ByteSet::Of('-'));
  for (char digit = '0'; digit <= '9'; ++digit) SplitClasses(ByteSet::Of(digit));
  return InternMultiple(static_cast<uint32_t>(at - rules_.begin()), kBeforePoint, 0);
}

RegexId RegexPool::InternMultiple(uint32_t rule, uint32_t digits, uint64_t rest) {
  const auto [modulus, scale] = rules_[rule];
  uint64_t scaled = rest;
  for (uint32_t i = digits == kBeforePoint ? 0 : digits; i < scale; ++i) {
    scaled = scaled * 10 % modulus;
  }
  return Intern({.kind = Kind::kMultiple,
                 .nullable = scaled == 0,
                 .exact = false,
                 .finite = false,
                 .b = digits,
                 .c = rule,
                 .rest = rest});
}

RegexId RegexPool::DeriveMultiple(const Node& node, uint8_t byte) {
  const auto [modulus, scale] = rules_[node.c];
  if (byte == '-') return InternMultiple(node.c, node.b, node.rest);
  if (byte == '.') {
    return node.b == kBeforePoint ? InternMultiple(node.c, 0, node.rest) : RegexId::kNothing;
  }
  if (byte < '0' || byte > '9') return RegexId::kNothing;
  const auto digit = static_cast<uint64_t>(byte - '0');
  if (node.b == kBeforePoint || node.b < scale) {
    const uint32_t digits = node.b == kBeforePoint ? kBeforePoint : node.b + 1;
    return InternMultiple(node.c, digits, (node.rest * 10 + digit) % modulus);
  }
  return digit == 0 ? InternMultiple(node.c, node.b, node.rest) : RegexId::kNothing;
}

RegexId RegexPool::DeriveNode(RegexId r, uint8_t byte) {
  if (r == RegexId::kNothing || r == RegexId::kEmpty || exhausted_) return RegexId::kNothing;
  const uint8_t representative = representatives_[class_of_[byte]];
  const uint64_t hash =
      FoldedMultiply(HashSeed() ^ Index(r), 0x9e3779b97f4a7c15ull ^ representative);
  const uint32_t found = derivative_index_.Find(hash, [&](uint32_t id) {
    return derivatives_[id].from == Index(r) && derivatives_[id].byte == representative;
  });
  if (found != InternIndex::kNone) return derivatives_[found].to;

  const Node node = nodes_[Index(r)];
  RegexId to = RegexId::kNothing;
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      if (sets_[node.a].Has(representative)) to = RegexId::kEmpty;
      break;
    case Kind::kConcat: {
      // Along the chain as far as heads may be empty; a loop, as chains are long.
      std::vector<RegexId> parts;
      RegexId at = r;
      while (nodes_[Index(at)].kind == Kind::kConcat && Spend(1)) {
        const RegexId head{nodes_[Index(at)].a};
        const RegexId tail{nodes_[Index(at)].b};
        parts.push_back(Concat(DeriveNode(head, representative), tail));
        at = tail;
        if (!Nullable(head)) break;
        if (nodes_[Index(at)].kind != Kind::kConcat) {
          parts.push_back(DeriveNode(at, representative));
        }
      }
      to = Or(std::move(parts));
      break;
    }
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts(Children(node).begin(), Children(node).end());
      for (RegexId& part : parts) part = DeriveNode(part, representative);
      to = node.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
      break;
    }
    case Kind::kNot:
      to = Not(DeriveNode(RegexId{node.a}, representative));
      break;
    case Kind::kRepeat: {
      const uint32_t max = node.c == kUnbounded ? kUnbounded : node.c - 1;
      to = Concat(DeriveNode(RegexId{node.a}, representative),
                  Repeat(RegexId{node.a}, node.b == 0 ? 0 : node.b - 1, max));
      break;
    }
    case Kind::kMultiple:
      to = DeriveMultiple(node, representative);
      break;
  }
  if (exhausted_) return RegexId::kNothing;
  derivative_index_.Insert(hash, static_cast<uint32_t>(derivatives_.size()));
  derivatives_.push_back({Index(r), representative, to});
  return to;
}

std::vector<RegexId> RegexPool::Copy(const RegexPool& from, std::span<const RegexId> expressions) {
  // Parts have lower numbers than what they are part of.
  std::vector<uint32_t> needed;
  std::vector<bool> seen(from.nodes_.size(), false);
  const auto need = [&](uint32_t node) {
    if (!seen[node]) needed.push_back(node);
    seen[node] = true;
  };
  for (const RegexId r : expressions) need(Index(r));
  for (size_t at = 0; at < needed.size(); ++at) {
    const Node& node = from.nodes_[needed[at]];
    if (node.kind == Kind::kOr || node.kind == Kind::kAnd) {
      for (const RegexId child : from.Children(node)) need(Index(child));
    } else if (node.kind == Kind::kConcat || node.kind == Kind::kNot ||
               node.kind == Kind::kRepeat) {
      need(node.a);
      if (node.kind == Kind::kConcat) need(node.b);
    }
  }
  std::sort(needed.begin(), needed.end());
  std::vector<RegexId> copies(from.nodes_.size(), RegexId::kNothing);
  for (const uint32_t index : needed) {
    const Node& node = from.nodes_[index];
    RegexId& copy = copies[index];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        copy = RegexId{index};
        break;
      case Kind::kBytes:
        copy = Bytes(from.sets_[node.a]);
        break;
      case Kind::kConcat:
        copy = Concat(copies[node.a], copies[node.b]);
        break;
      case Kind::kOr:
      case Kind::kAnd: {
        std::vector<RegexId> parts;
        for (const RegexId child : from.Children(node)) parts.push_back(copies[Index(child)]);
        copy = node.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
        break;
      }
      case Kind::kNot:
        copy = Not(copies[node.a]);
        break;
      case Kind::kRepeat:
        copy = Repeat(copies[node.a], node.b, node.c);
        break;
      case Kind::kMultiple:
        copy = InternMultiple(node.c, node.b, node.rest);
        break;
    }
  }
  std::vector<RegexId> result;
  for (const RegexId r : expressions) result.push_back(copies[Index(r)]);
  return result;
}

void RegexPool::GroupClasses(std::span<const RegexId> expressions,
                             std::vector<uint8_t>* groups) const {
  constexpr size_t kNodesMax = 2000;
  constexpr size_t kSetsMax = 256;
  const size_t count = representatives_.size();
  groups->resize(count);
  for (size_t i = 0; i < count; ++i) (*groups)[i] = static_cast<uint8_t>(i);

  // The sets that a first byte is looked up in.
  std::vector<uint32_t> open;
  for (const RegexId r : expressions) open.push_back(Index(r));
  std::vector<uint32_t> sets;
  for (size_t at = 0; at < open.size(); ++at) {
    if (open.size() > kNodesMax) return;
    const Node& node = nodes_[open[at]];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        break;
      case Kind::kBytes:
        sets.push_back(node.a);
        break;
      case Kind::kConcat:
        open.push_back(node.a);
        if (nodes_[node.a].nullable) open.push_back(node.b);
        break;
      case Kind::kOr:
      case Kind::kAnd:
        for (const RegexId child : Children(node)) open.push_back(Index(child));
        break;
      case Kind::kNot:
      case Kind::kRepeat:
        open.push_back(node.a);
        break;
      case Kind::kMultiple:
        return;
    }
  }
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  if (sets.size() > kSetsMax) return;

  using Signature = std::array<uint64_t, kSetsMax / 64 + 1>;
  std::vector<std::pair<Signature, uint8_t>> leaders;
  const size_t words = (sets.size() + 63) / 64;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t byte = representatives_[i];
    Signature signature = {};
    for (size_t bit = 0; bit < sets.size(); ++bit) {
      signature[bit / 64] |= uint64_t{sets_[sets[bit]].Has(byte)} << (bit % 64);
    }
    signature[words] = alphabet_.Has(byte) ? 1 : 0;
    const auto same = std::ranges::find_if(leaders, [&](const auto& leader) {
      return std::equal(signature.begin(), signature.begin() + words + 1, leader.first.begin());
    });
    if (same != leaders.end()) {
      (*groups)[i] = same->second;
    } else {
      leaders.emplace_back(signature, static_cast<uint8_t>(i));
    }
  }
}

RegexPool::Form RegexPool::FormOf(RegexId r) const {
  const Node* node = &nodes_[Index(r)];
  if (node->kind == Kind::kConcat) node = &nodes_[node->a];
  if (node->kind == Kind::kAnd) {
    Form form;
    for (const RegexId part : Children(*node)) {
      const Node& child = nodes_[Index(part)];
      if (child.kind == Kind::kNot && nodes_[child.a].finite) continue;
      if (form.kind == Form::Kind::kWithout) return {};
      form = {Form::Kind::kWithout, part};
    }
    return form;
  }
  if (node->kind != Kind::kRepeat) return {};
  return {Form::Kind::kRepeat, RegexId{node->a}, node->c};
}

RegexId RegexPool::Derive(RegexId r, uint8_t byte) {
  if (!alphabet_.Has(byte)) return RegexId::kNothing;
  const RegexId to = DeriveNode(r, byte);
  return IsNothing(to) ? RegexId::kNothing : to;
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
  std::vector<uint8_t> groups;
  liveness_[Index(r)] = kDead;  // seen; revised below
  for (size_t at = 0; at < visits.size() && Spend(1); ++at) {
    GroupClasses({&visits[at].regex, 1}, &groups);
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
