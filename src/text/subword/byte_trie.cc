// SPDX-License-Identifier: Apache-2.0
#include "text/subword/byte_trie.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace reprise {

class ByteTrieBuilder {
 public:
  explicit ByteTrieBuilder(std::vector<ByteTrie::Key> keys) : keys_(std::move(keys)) {}

  ByteTrie Run() {
    std::erase_if(keys_, [](const ByteTrie::Key& key) { return key.text.empty(); });
    std::stable_sort(keys_.begin(), keys_.end(),
                     [](const auto& a, const auto& b) { return a.text < b.text; });
    Reserve(1);
    units()[ByteTrie::kRoot].check = UINT32_MAX;  // never free, nobody's child
    std::vector<Range> open = {{0, keys_.size(), 0, ByteTrie::kRoot}};
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      Expand(range, &open);
    }
    return std::move(trie_);
  }

 private:
  // The keys [begin, end) share their first `depth` bytes, which lead to `node`.
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };

  std::vector<ByteTrie::Unit>& units() { return trie_.units_; }

  void Reserve(size_t count) {
    if (units().size() < count) units().resize(std::max(count, units().size() * 5 / 4 + 256));
  }

  void Expand(Range range, std::vector<Range>* open) {
    // A key that ends here; duplicates follow it.
    while (range.begin < range.end && keys_[range.begin].text.size() == range.depth) {
      int32_t& value = units()[range.node].value;
      if (value < 0) value = keys_[range.begin].value;
      ++range.begin;
    }
    if (range.begin == range.end) return;
    children_.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const uint8_t byte = static_cast<uint8_t>(keys_[i].text[range.depth]);
      if (children_.empty() || children_.back().byte != byte) children_.push_back({byte, i});
    }
    const uint32_t base = FindBase();
    units()[range.node].base = base;
    for (size_t i = 0; i < children_.size(); ++i) {
      const size_t end = i + 1 < children_.size() ? children_[i + 1].begin : range.end;
      const uint32_t child = base + children_[i].byte;
      units()[child].check = range.node + 1;
      open->push_back({children_[i].begin, end, range.depth + 1, child});
    }
  }

  // The first base that has room for all children, from where it is worth looking. Many children
  // do not find room where one still does, so each size has a place of its own to begin at. It goes
  // on where the array is nearly full, and after a long search: no file can make every search long.
  uint32_t FindBase() {
    static constexpr size_t kTriesMax = 512;
    const size_t size = std::min<size_t>(std::bit_width(children_.size()), kSizes) - 1;
    size_t tried = 0;
    size_t full = 0;
    for (size_t at = std::max<size_t>(search_from_[size], children_[0].byte + 1u);; ++at) {
      const size_t base = at - children_[0].byte;
      Reserve(base + 256);
      ++tried;
      if (units()[at].check != 0) {
        ++full;
        continue;
      }
      const bool fits = std::all_of(children_.begin(), children_.end(), [&](const Child& child) {
        return units()[base + child.byte].check == 0;
      });
      if (!fits) continue;
      if (full * 20 >= tried * 19 || tried > kTriesMax) search_from_[size] = at;
      return static_cast<uint32_t>(base);
    }
  }

  struct Child {
    uint8_t byte;
    size_t begin;  // of its keys
  };

  std::vector<ByteTrie::Key> keys_;
  std::vector<Child> children_;
  ByteTrie trie_;
  static constexpr size_t kSizes = 9;  // of 1, 2 to 3, 4 to 7... 256 children
  size_t search_from_[kSizes] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
};

ByteTrie ByteTrie::Build(std::vector<Key> keys) { return ByteTrieBuilder(std::move(keys)).Run(); }

}  // namespace reprise
