// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex/regex_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace reprise::grammar {
namespace {

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
         node_index_.bytes() + derivative_index_.bytes() + grouping_of_.size() * sizeof(uint32_t) +
         met_.size() * sizeof(uint32_t) + groupings_.size() * (sizeof(Grouping) + 512) +
         within_.size() * 32;
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
    node.counts = std::max(node.counts, nodes_[Index(part)].counts);
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
                   .counts = std::max(head.counts, rest.counts),
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
  if (flat.size() > 1) Absorb(&flat);
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
  if (Excludes(flat)) return RegexId::kNothing;
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
                 .counts = node.counts,
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
                 .counts = static_cast<uint8_t>(
                     std::min(2, node.counts + (max > 1 && max != kUnbounded ? 1 : 0))),
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

RegexPool::Form RegexPool::FormOf(RegexId r) const {
  const Node* node = &nodes_[Index(r)];
  if (node->kind == Kind::kConcat) node = &nodes_[node->a];
  if (node->kind == Kind::kRepeat) {
    return {
        .kind = Form::Kind::kRepeat, .operand = RegexId{node->a}, .min = node->b, .max = node->c};
  }
  if (node->kind != Kind::kAnd) return {};
  // Two parts, one of which counts.
  const auto repeat_of = [&](const Node& part) -> const Node* {
    const Node& head = part.kind == Kind::kConcat ? nodes_[part.a] : part;
    return head.kind == Kind::kRepeat && head.c != kUnbounded ? &head : nullptr;
  };
  std::vector<RegexId> parts;
  for (const RegexId part : Children(*node)) {
    const Node& child = nodes_[Index(part)];
    if (child.kind == Kind::kNot && nodes_[child.a].finite) continue;
    parts.push_back(part);
  }
  if (parts.size() == 1) return {.kind = Form::Kind::kWithout, .operand = parts[0]};
  if (parts.size() != 2 || node->b != 2) return {};
  if (repeat_of(nodes_[Index(parts[0])]) == nullptr) std::swap(parts[0], parts[1]);
  const Node& counted = nodes_[Index(parts[0])];
  const Node* const repeat = repeat_of(counted);
  if (repeat == nullptr || !counted.exact || !nodes_[Index(parts[1])].exact) return {};
  return {.kind = Form::Kind::kCounted,
          .operand = RegexId{repeat->a},
          .min = repeat->b,
          .max = repeat->c,
          .tail = counted.kind == Kind::kConcat ? RegexId{counted.b} : RegexId::kEmpty,
          .rest = parts[1]};
}

bool RegexPool::AppendSomeText(RegexId r, int* nodes_left, std::string* text) const {
  constexpr size_t kBytesMax = 1024;
  // Along the chain of concatenations; a loop, as chains are long.
  for (;;) {
    if (--*nodes_left < 0 || text->size() > kBytesMax) return false;
    const Node& node = nodes_[Index(r)];
    if (node.nullable) return true;
    switch (node.kind) {
      case Kind::kBytes: {
        const std::array<uint64_t, 4> words = (sets_[node.a] & alphabet_).words();
        for (size_t i = 0; i < 4; ++i) {
          if (words[i] == 0) continue;
          *text += static_cast<char>(i * 64 + static_cast<size_t>(std::countr_zero(words[i])));
          return true;
        }
        return false;
      }
      case Kind::kConcat:
        if (!AppendSomeText(RegexId{node.a}, nodes_left, text)) return false;
        r = RegexId{node.b};
        continue;
      case Kind::kOr: {
        const size_t begin = text->size();
        for (const RegexId child : Children(node)) {
          if (AppendSomeText(child, nodes_left, text)) return true;
          text->resize(begin);
        }
        return false;
      }
      case Kind::kRepeat:
        for (uint32_t i = 0; i < node.b; ++i) {
          if (!AppendSomeText(RegexId{node.a}, nodes_left, text)) return false;
        }
        return true;
      default:
        return false;
    }
  }
}

std::optional<std::string> RegexPool::SomeText(RegexId r) const {
  int nodes_left = 2000;
  std::string text;
  if (!AppendSomeText(r, &nodes_left, &text)) return std::nullopt;
  return text;
}

RegexId RegexPool::Derive(RegexId r, uint8_t byte) {
  if (!alphabet_.Has(byte)) return RegexId::kNothing;
  const RegexId to = DeriveNode(r, byte);
  return IsNothing(to) ? RegexId::kNothing : to;
}

}  // namespace reprise::grammar
