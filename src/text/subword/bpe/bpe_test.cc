// SPDX-License-Identifier: Apache-2.0
// Proves: with all its shortcuts, byte-level BPE gives what the definition gives (bytes as symbols,
// the pair of the lowest rank first), for random vocabularies and any bytes, valid UTF-8 or not.
#include "text/subword/bpe/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/rng.h"
#include "text/subword/byte_alphabet.h"

namespace reprise {
namespace {

using Ids = std::vector<int32_t>;

// The bytes of characters of two and three bytes that share continuation bytes, and a letter.
constexpr std::string_view kBytes = "\xD8\x8C\xE2\x80\x8C\xC3\xA9\x61\xFF";

struct Vocabulary {
  std::vector<std::string> tokens;  // by id: the bytes, then what merges make
  std::map<std::pair<int32_t, int32_t>, std::pair<int32_t, int32_t>> merges;  // pair -> rank, id
  std::unique_ptr<Bpe> bpe;
};

std::string InAlphabet(std::string_view bytes) {
  std::string text;
  AppendAlphabetText(bytes, &text);
  return text;
}

Vocabulary MakeVocabulary(Rng* rng) {
  Vocabulary made;
  std::map<std::string, int32_t> ids;
  const auto add = [&](const std::string& token) {
    const auto [at, added] = ids.emplace(token, static_cast<int32_t>(made.tokens.size()));
    if (added) made.tokens.push_back(token);
    return at->second;
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  std::vector<int32_t> used;
  for (const char c : kBytes) used.push_back(static_cast<uint8_t>(c));
  VocabSpec spec;
  spec.model = VocabSpec::Model::kByteBpe;
  for (uint64_t count = 4 + rng->Below(24); count > 0; --count) {
    const int32_t left = used[rng->Below(used.size())];
    const int32_t right = used[rng->Below(used.size())];
    const std::string joined =
        made.tokens[static_cast<size_t>(left)] + made.tokens[static_cast<size_t>(right)];
    if (joined.size() > 6 || made.merges.contains({left, right})) continue;
    const int32_t id = add(joined);
    made.merges[{left, right}] = {static_cast<int32_t>(spec.merges.size()), id};
    spec.merges.Add(InAlphabet(made.tokens[static_cast<size_t>(left)]));
    spec.merges.Add(InAlphabet(made.tokens[static_cast<size_t>(right)]));
    used.push_back(id);
  }
  for (const std::string& token : made.tokens) spec.tokens.Add(InAlphabet(token));
  auto bpe = Bpe::Make(spec);
  CHECK(bpe.ok());
  made.bpe = std::move(*bpe);
  return made;
}

Ids Define(const Vocabulary& vocabulary, std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    std::pair<int32_t, int32_t> lowest = {INT32_MAX, -1};
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = vocabulary.merges.find({ids[i], ids[i + 1]});
      if (merge != vocabulary.merges.end() && merge->second.first < lowest.first) {
        lowest = merge->second;
        best = i;
      }
    }
    if (lowest.second < 0) return ids;
    ids[best] = lowest.second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeTest, EqualsTheDefinition) {
  Rng rng(5);
  SubwordScratch scratch;
  for (int round = 0; round < 2000; ++round) {
    const Vocabulary vocabulary = MakeVocabulary(&rng);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (uint64_t size = 1 + rng.Below(24); text.size() < size;) {
        text += kBytes[rng.Below(kBytes.size())];
      }
      const Piece whole{0, static_cast<uint32_t>(text.size())};
      Ids ids;
      vocabulary.bpe->Encode(text, {&whole, 1}, &scratch, &ids);
      ASSERT_EQ(ids, Define(vocabulary, text)) << round;
    }
  }
}

}  // namespace
}  // namespace reprise
