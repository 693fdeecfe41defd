// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/bpe.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/subword/byte_alphabet.h"
#include "text/subword/byte_token.h"
#include "text/unicode/classes.h"

namespace reprise {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

bool IsPlain(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

TokenKind KindOf(const VocabSpec& spec, size_t id) {
  return spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[id];
}

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::Make(const VocabSpec& spec) {
  std::unique_ptr<Bpe> bpe(new Bpe);
  bpe->bytes_ = spec.model == VocabSpec::Model::kByteBpe;
  bpe->fuse_unknown_ = spec.fuse_unknown;
  bpe->ignore_merges_ = spec.ignore_merges;
  bpe->unknown_id_ = spec.unknown_id;
  bpe->IndexTokens(spec);
  if (spec.merges.size() == 0 && !spec.scores.empty()) {
    REPRISE_TRY(bpe->DeriveMerges(spec));
  } else {
    REPRISE_TRY(bpe->AddMerges(spec));
  }
  bpe->merges_.Reserve(bpe->rules_.size());
  for (const Rule& rule : bpe->rules_) bpe->merges_.Add(rule.left, rule.right, rule.merge);
  if (bpe->bytes_) {
    bpe->FindWholeChars();
  } else {
    bpe->CheckSpaces();
  }
  std::vector<Rule>().swap(bpe->rules_);
  return bpe;
}

void Bpe::IndexTokens(const VocabSpec& spec) {
  const size_t count = spec.tokens.size();
  texts_.Reserve(count, spec.tokens.bytes());
  std::string bytes;
  for (size_t id = 0; id < count; ++id) {
    bytes.clear();
    const bool decoded = bytes_ && AppendAlphabetBytes(spec.tokens[id], &bytes);
    texts_.Add(decoded ? bytes : spec.tokens[id]);
  }
  index_.Reserve(count);
  states_ = std::make_unique<std::atomic<uint8_t>[]>(count);
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  // Ordinary tokens first: where two have one text, text becomes the ordinary one.
  for (const bool plain : {true, false}) {
    for (size_t id = 0; id < count; ++id) {
      const TokenKind kind = KindOf(spec, id);
      if (IsPlain(kind) != plain) continue;
      index_.Add(texts_, static_cast<int32_t>(id));
      states_[id] = !plain ? kParts : spec.ignore_merges ? kWhole : kUntested;
      const std::string_view text = texts_[id];
      if (bytes_ && text.size() == 1 && byte_ids_[static_cast<uint8_t>(text[0])] < 0) {
        byte_ids_[static_cast<uint8_t>(text[0])] = static_cast<int32_t>(id);
      }
      const int byte = !bytes_ && spec.byte_fallback ? ParseByteToken(text) : -1;
      if (byte >= 0 && byte_ids_[byte] < 0) byte_ids_[byte] = static_cast<int32_t>(id);
    }
  }
  for (size_t code = 0; code < ascii_ids_.size(); ++code) {
    const char c = static_cast<char>(code);
    ascii_ids_[code] = index_.Find(texts_, {&c, 1});
  }
}

Status Bpe::AddMerges(const VocabSpec& spec) {
  const size_t count = spec.merges.size() / 2;
  rank_count_ = count;
  rules_.reserve(count);
  std::string text;
  for (size_t rank = 0; rank < count; ++rank) {
    text.clear();
    const auto append = [&](std::string_view part) {
      if (!bytes_ || !AppendAlphabetBytes(part, &text)) text.append(part);
    };
    append(spec.merges[2 * rank]);
    const size_t left_size = text.size();
    append(spec.merges[2 * rank + 1]);
    const std::string_view whole = text;
    const int32_t left = index_.Find(texts_, whole.substr(0, left_size));
    const int32_t right = index_.Find(texts_, whole.substr(left_size));
    const int32_t id = index_.Find(texts_, whole);
    if (left < 0 || right < 0 || id < 0) {
      return DataLoss("merge " + std::to_string(rank) + " of the tokenizer joins \"" +
                      std::string(spec.merges[2 * rank]) + "\" and \"" +
                      std::string(spec.merges[2 * rank + 1]) + "\", of which " +
                      (left < 0    ? "the first is"
                       : right < 0 ? "the second is"
                                   : "the result is") +
                      " not in the vocabulary");
    }
    rules_.push_back({left, right, {static_cast<uint32_t>(rank), id}});
  }
  return OkStatus();
}

// Files of SentencePiece and tekken.json have no merges: two neighbours merge if what they spell is
// a token, and the token with the highest score goes first. Equal scores have equal rank.
Status Bpe::DeriveMerges(const VocabSpec& spec) {
  // SentencePiece's own limit is 16 characters unless it is told otherwise. Beyond this a token is
  // never made by merging; it would take time in the square of its length to find out how.
  static constexpr size_t kDerivedBytesMax = 1024;
  struct Candidate {
    int32_t left, right, id;
  };
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < texts_.size(); ++id) {
    const TokenKind kind = KindOf(spec, id);
    if (!IsPlain(kind) && kind != TokenKind::kUnused) continue;
    const std::string_view text = texts_[id];
    if (text.size() > kDerivedBytesMax) continue;
    const char* const end = text.data() + text.size();
    for (size_t cut = 0; cut < text.size();) {
      cut += bytes_ ? 1 : unicode::DecodeChar(text.data() + cut, end).length;
      if (cut >= text.size()) break;
      const int32_t left = index_.Find(texts_, text.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = index_.Find(texts_, text.substr(cut));
      if (right >= 0) candidates.push_back({left, right, static_cast<int32_t>(id)});
    }
    if (candidates.size() > kVocabMergesMax) {
      return DataLoss("the tokenizer's tokens can be merged in more ways than the limit of " +
                      std::to_string(kVocabMergesMax));
    }
  }
  const auto score = [&](const Candidate& c) { return spec.scores[static_cast<size_t>(c.id)]; };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return score(a) > score(b); });
  rules_.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0 && score(candidates[i]) != score(candidates[i - 1])) ++rank_count_;
    const Candidate& c = candidates[i];
    rules_.push_back({c.left, c.right, {static_cast<uint32_t>(rank_count_), c.id}});
  }
  ++rank_count_;
  return OkStatus();
}

void Bpe::CheckSpaces() {
  cut_at_spaces_ = std::none_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    std::string_view text = texts_[static_cast<size_t>(rule.merge.id)];
    while (text.starts_with(kMetaspace)) text.remove_prefix(kMetaspace.size());
    return text.find(kMetaspace) != text.npos;
  });
}

void Bpe::FindWholeChars() {
  static constexpr uint32_t kCodes = 0x10000;
  char_ids_.assign(kCodes, -1);
  // Where a byte is dropped, its neighbours become neighbours: no border can be judged.
  if (*std::min_element(byte_ids_.begin(), byte_ids_.end()) < 0) return;
  for (const Rule& rule : rules_) borders_.AddToken(texts_[static_cast<size_t>(rule.merge.id)]);
  Merger merger;
  std::unordered_map<int32_t, std::pair<uint32_t, uint32_t>> whole;  // id -> code, highest rank
  for (const Rule& rule : rules_) {
    const int32_t id = rule.merge.id;
    const std::string_view text = texts_[static_cast<size_t>(id)];
    if (text.size() < 2 || text.size() > 3) continue;
    const unicode::DecodedChar c = unicode::DecodeChar(text.data(), text.data() + text.size());
    if (c.length != text.size()) continue;
    int32_t symbols[3];
    for (size_t i = 0; i < text.size(); ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(text[i])];
    uint32_t rank_max = 0;
    if (*std::min_element(symbols, symbols + text.size()) < 0) continue;
    const size_t left = merger.RunShort(merges_, std::span(symbols, text.size()), &rank_max);
    if (left == 1 && symbols[0] == id) whole[id] = {c.code, rank_max};
  }
  // No merge may use the token before it is made.
  for (const Rule& rule : rules_) {
    for (const int32_t id : {rule.left, rule.right}) {
      const auto found = whole.find(id);
      if (found != whole.end() && rule.merge.rank <= found->second.second) whole.erase(found);
    }
  }
  for (const auto& [id, entry] : whole) char_ids_[entry.first] = id;
}

void Bpe::Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
                 std::vector<int32_t>* ids) const {
  // A short text is done before the cache pays.
  static constexpr size_t kCachedTextBytes = 4096;
  const bool cached = text.size() >= kCachedTextBytes;
  for (const Piece piece : pieces) {
    std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    if (!cut_at_spaces_) {
      EncodePiece(part, cached, scratch, ids);
      continue;
    }
    // No merge reaches over the front of a U+2581: each word is a piece of its own.
    while (!part.empty()) {
      size_t at = 0;
      while (part.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
      const size_t end = std::min(part.find(kMetaspace, at), part.size());
      EncodePiece(part.substr(0, end), cached, scratch, ids);
      part.remove_prefix(end);
    }
  }
}

void Bpe::EncodePiece(std::string_view piece, bool cached, SubwordScratch* scratch,
                      std::vector<int32_t>* ids) const {
  if (piece.size() <= 2 && EncodeTiny(piece, ids)) return;
  if (!cached || piece.size() > PieceCache::kBytesMax || piece.empty()) {
    return MergePiece(piece, scratch, ids);
  }
  bool hit = false;
  PieceCache::Entry* const entry = scratch->cache.Find(piece, &hit);
  if (hit) {
    ids->insert(ids->end(), entry->ids, entry->ids + entry->count);
    return;
  }
  const size_t before = ids->size();
  MergePiece(piece, scratch, ids);
  const size_t count = ids->size() - before;
  if (count <= PieceCache::kIdsMax) {
    entry->count = static_cast<uint8_t>(count);
    std::copy(ids->end() - static_cast<ptrdiff_t>(count), ids->end(), entry->ids);
  } else {
    entry->size = 0;
  }
}

// One or two bytes, which random bytes are split into: no more than one merge. False if it takes
// more than that to know.
bool Bpe::EncodeTiny(std::string_view piece, std::vector<int32_t>* ids) const {
  if (!bytes_ || piece.empty()) return false;
  const int32_t first = byte_ids_[static_cast<uint8_t>(piece[0])];
  if (first < 0) return false;
  if (piece.size() == 1) {
    ids->push_back(first);
    return true;
  }
  const int32_t second = byte_ids_[static_cast<uint8_t>(piece[1])];
  if (ignore_merges_ || second < 0) return false;
  const Merge merge = merges_.Find(first, second);
  if (merge.rank == MergeTable::kNoRank) {
    ids->insert(ids->end(), {first, second});
  } else {
    ids->push_back(merge.id);
  }
  return true;
}

void Bpe::MergePiece(std::string_view piece, SubwordScratch* scratch,
                     std::vector<int32_t>* ids) const {
  const int32_t whole = index_.Find(texts_, piece);
  const uint8_t state = whole < 0
                            ? uint8_t{kParts}
                            : states_[static_cast<size_t>(whole)].load(std::memory_order_relaxed);
  if (state == kWhole) {
    ids->push_back(whole);
    return;
  }
  std::vector<int32_t>& symbols = scratch->symbols;
  symbols.clear();
  Symbolize(piece, &symbols);
  if (symbols.size() <= Merger::kShortMax) {
    uint32_t rank_max = 0;
    symbols.resize(scratch->merger.RunShort(merges_, symbols, &rank_max));
  } else {
    scratch->merger.Run(merges_, rank_count_, &symbols);
  }
  if (state == kUntested) {
    const bool same = symbols.size() == 1 && symbols[0] == whole;
    states_[static_cast<size_t>(whole)].store(same ? kWhole : kParts, std::memory_order_relaxed);
  }
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

void Bpe::SymbolizeBytes(std::string_view piece, std::vector<int32_t>* symbols) const {
  const char* const end = piece.data() + piece.size();
  size_t clean = 0;  // a border that no token crosses from inside a character
  symbols->reserve(symbols->size() + piece.size());
  for (size_t at = 0; at < piece.size();) {
    const uint8_t lead = static_cast<uint8_t>(piece[at]);
    if (lead >= 0xC2 && lead < 0xF0) {
      const unicode::DecodedChar c = unicode::DecodeChar(piece.data() + at, end);
      const int32_t id = char_ids_[c.code];
      if (id >= 0) {
        const size_t after = at + c.length;
        const bool begins = at == clean || !borders_.MayCross(piece, at);
        const bool ends = after == piece.size() || !borders_.MayCross(piece, after);
        if (ends) clean = after;
        if (begins && ends) {
          symbols->push_back(id);
          at = after;
          continue;
        }
      }
    }
    const int32_t id = byte_ids_[lead] >= 0 ? byte_ids_[lead] : unknown_id_;
    if (id >= 0) symbols->push_back(id);
    ++at;
  }
}

void Bpe::Symbolize(std::string_view piece, std::vector<int32_t>* symbols) const {
  if (bytes_) return SymbolizeBytes(piece, symbols);
  const char* const end = piece.data() + piece.size();
  for (const char* at = piece.data(); at < end;) {
    const size_t length = unicode::DecodeChar(at, end).length;
    const std::string_view character(at, length);
    const uint8_t lead = static_cast<uint8_t>(*at);
    const int32_t id = lead < 0x80 ? ascii_ids_[lead] : index_.Find(texts_, character);
    if (id >= 0) {
      symbols->push_back(id);
    } else {
      SymbolizeUnknown(character, symbols);
    }
    at += length;
  }
}

// A character that is not a token.
void Bpe::SymbolizeUnknown(std::string_view character, std::vector<int32_t>* symbols) const {
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : character) symbols->push_back(byte_id(c));
  } else if (unknown_id_ >= 0) {
    const bool fuse = fuse_unknown_ && !symbols->empty() && symbols->back() == unknown_id_;
    if (!fuse) symbols->push_back(unknown_id_);
  }
}

}  // namespace reprise
