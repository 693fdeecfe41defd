// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "text/subword/byte_alphabet.h"
#include "text/subword/byte_token.h"
#include "text/unicode/classes.h"

namespace reprise {
namespace {

constexpr size_t kShortSymbolsMax = 128;
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
  bpe->unknown_id_ = spec.unknown_id;
  bpe->IndexTokens(spec);
  if (spec.merges.size() == 0 && !bpe->bytes_ && !spec.scores.empty()) {
    bpe->DeriveMerges(spec);
  } else {
    REPRISE_TRY(bpe->AddMerges(spec));
  }
  if (!bpe->bytes_) bpe->CheckSpaces();
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
  merges_.Reserve(count);
  rank_count_ = count;
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
    merges_.Add(left, right, {static_cast<uint32_t>(rank), id});
    merged_ids_.push_back(id);
  }
  return OkStatus();
}

// SentencePiece files have no merges: two neighbours merge if what they spell is a token, and the
// token with the highest score goes first. Equal scores have equal rank.
void Bpe::DeriveMerges(const VocabSpec& spec) {
  struct Candidate {
    int32_t left, right, id;
  };
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < texts_.size(); ++id) {
    const TokenKind kind = KindOf(spec, id);
    if (!IsPlain(kind) && kind != TokenKind::kUnused) continue;
    const std::string_view text = texts_[id];
    const char* const end = text.data() + text.size();
    for (size_t cut = 0; cut < text.size();) {
      cut += unicode::DecodeChar(text.data() + cut, end).length;
      if (cut >= text.size()) break;
      const int32_t left = index_.Find(texts_, text.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = index_.Find(texts_, text.substr(cut));
      if (right >= 0) candidates.push_back({left, right, static_cast<int32_t>(id)});
    }
  }
  const auto score = [&](const Candidate& c) { return spec.scores[static_cast<size_t>(c.id)]; };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return score(a) > score(b); });
  merges_.Reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0 && score(candidates[i]) != score(candidates[i - 1])) ++rank_count_;
    const Candidate& c = candidates[i];
    merges_.Add(c.left, c.right, {static_cast<uint32_t>(rank_count_), c.id});
    merged_ids_.push_back(c.id);
  }
  ++rank_count_;
}

void Bpe::CheckSpaces() {
  cut_at_spaces_ = std::none_of(merged_ids_.begin(), merged_ids_.end(), [&](int32_t id) {
    std::string_view text = texts_[static_cast<size_t>(id)];
    while (text.starts_with(kMetaspace)) text.remove_prefix(kMetaspace.size());
    return text.find(kMetaspace) != text.npos;
  });
  std::vector<int32_t>().swap(merged_ids_);
}

void Bpe::Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
                 std::vector<int32_t>* ids) const {
  for (const Piece piece : pieces) {
    const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    if (cut_at_spaces_) {
      EncodeWords(part, scratch, ids);
    } else {
      EncodePiece(part, scratch, ids);
    }
  }
}

// Where no merge reaches over the front of a U+2581, each word is a piece of its own.
void Bpe::EncodeWords(std::string_view text, SubwordScratch* scratch,
                      std::vector<int32_t>* ids) const {
  while (!text.empty()) {
    size_t at = 0;
    while (text.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
    const size_t end = std::min(text.find(kMetaspace, at), text.size());
    EncodePiece(text.substr(0, end), scratch, ids);
    text.remove_prefix(end);
  }
}

void Bpe::EncodePiece(std::string_view piece, SubwordScratch* scratch,
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
  if (symbols.size() > kShortSymbolsMax) {
    MergeLong(scratch);
  } else if (symbols.size() > 1) {
    MergeShort(scratch);
  }
  if (state == kUntested) {
    const bool same = symbols.size() == 1 && symbols[0] == whole;
    states_[static_cast<size_t>(whole)].store(same ? kWhole : kParts, std::memory_order_relaxed);
  }
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

void Bpe::Symbolize(std::string_view piece, std::vector<int32_t>* symbols) const {
  if (bytes_) {
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) {
        symbols->push_back(id);
      } else if (unknown_id_ >= 0) {
        symbols->push_back(unknown_id_);
      }
    }
    return;
  }
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

void Bpe::MergeShort(SubwordScratch* scratch) const {
  std::vector<int32_t>& symbols = scratch->symbols;
  size_t count = symbols.size();
  uint32_t ranks[kShortSymbolsMax];  // [count - 1]: of the pair that begins here
  int32_t results[kShortSymbolsMax];
  const auto look_up = [&](size_t i) {
    const Merge merge = merges_.Find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    results[i] = merge.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == MergeTable::kNoRank) break;
    symbols[best] = results[best];
    const size_t behind = count - best - 2;  // symbols after the pair
    if (behind > 0) {
      std::memmove(&symbols[best + 1], &symbols[best + 2], behind * sizeof(symbols[0]));
      std::memmove(&ranks[best], &ranks[best + 1], behind * sizeof(ranks[0]));
      std::memmove(&results[best], &results[best + 1], behind * sizeof(results[0]));
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

// Symbols stay where they are; spans say how far each reaches, at its first and at its last place:
//
//   ids    a  b  c  d        (bc)     a  bc  -  d
//   spans  1  1  1  1        ->       1  2   2  1
void Bpe::MergeLong(SubwordScratch* scratch) const {
  std::vector<int32_t>& symbols = scratch->symbols;
  std::vector<uint32_t>& spans = scratch->spans;
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  spans.assign(count, 1);
  MergeQueue& queue = scratch->queue;
  queue.Reset(rank_count_);
  const auto push = [&](uint32_t left, uint32_t right) {
    const Merge merge = merges_.Find(symbols[left], symbols[right]);
    if (merge.rank != MergeTable::kNoRank) queue.Push(merge.rank, left);
  };
  for (uint32_t i = 0; i + 1 < count; ++i) push(i, i + 1);
  uint32_t rank = 0;
  uint32_t left = 0;
  while (queue.Pop(&rank, &left)) {
    if (symbols[left] < 0) continue;  // merged into its left neighbour since
    const uint32_t right = left + spans[left];
    if (right >= count) continue;
    const Merge merge = merges_.Find(symbols[left], symbols[right]);
    if (merge.rank != rank) continue;  // another pair by now
    const uint32_t end = right + spans[right];
    symbols[left] = merge.id;
    symbols[right] = -1;
    spans[left] = spans[end - 1] = end - left;
    if (left > 0) push(left - spans[left - 1], left);
    if (end < count) push(left, end);
  }
  std::erase_if(symbols, [](int32_t id) { return id < 0; });
}

}  // namespace reprise
