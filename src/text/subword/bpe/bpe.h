// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/subword/bpe/char_borders.h"
#include "text/subword/bpe/merge_table.h"
#include "text/subword/model.h"
#include "text/subword/token_index.h"
#include "text/vocab/spec.h"
#include "text/vocab/string_table.h"

namespace reprise {

// Bpe is byte-pair encoding, over bytes or over characters: a piece is cut into its smallest
// symbols, then the neighbouring pair of the lowest rank (the leftmost of equals) is merged until
// no pair has a merge.
//
// Shortcuts, all exact:
//  - a piece that is a token, and that its own symbols merge back to (most words), is that token.
//    Which tokens are such is found out once per token, on first use;
//  - within a long text, the ids of short pieces are remembered;
//  - a character of two or three bytes starts as one symbol if its bytes merge to one token, no
//    token joins a part of it with its neighbour (CharBorders), and no merge of that token has a
//    lower rank than those that make it: then what happens inside it happens first and alone;
//  - where no merge reaches over the front of a U+2581, words are pieces of their own.
//
// Characters that are not in the vocabulary become byte tokens ("<0x0A>"), or the unknown token, or
// nothing, in this order of preference.
class Bpe final : public SubwordModel {
 public:
  // Fails with kDataLoss if a merge names a token that does not exist, or if scores imply more
  // merges than kVocabMergesMax.
  static Result<std::unique_ptr<Bpe>> Make(const VocabSpec& spec);

  void Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  enum State : uint8_t { kUntested, kWhole, kParts };
  struct Rule {
    int32_t left, right;
    Merge merge;
  };

  Bpe() = default;
  void IndexTokens(const VocabSpec& spec);
  Status AddMerges(const VocabSpec& spec);
  Status DeriveMerges(const VocabSpec& spec);
  void CheckSpaces();
  void FindWholeChars();

  void EncodePiece(std::string_view piece, bool cached, SubwordScratch* scratch,
                   std::vector<int32_t>* ids) const;
  bool EncodeTiny(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergePiece(std::string_view piece, SubwordScratch* scratch, std::vector<int32_t>* ids) const;
  void Symbolize(std::string_view piece, std::vector<int32_t>* symbols) const;
  void SymbolizeBytes(std::string_view piece, std::vector<int32_t>* symbols) const;
  void SymbolizeUnknown(std::string_view character, std::vector<int32_t>* symbols) const;

  bool bytes_ = false;          // symbols are bytes, else characters
  bool cut_at_spaces_ = false;  // no merge joins something with a U+2581 after it
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a token is that token
  int32_t unknown_id_ = -1;
  StringTable texts_;  // id -> what it stands for in the text
  TokenIndex index_;
  MergeTable merges_;
  size_t rank_count_ = 0;
  std::vector<Rule> rules_;             // all merges; only while it is made
  std::array<int32_t, 256> byte_ids_;   // the token of a byte, or -1
  std::array<int32_t, 128> ascii_ids_;  // of an ASCII character, or -1
  std::vector<int32_t> char_ids_;       // [U+10000] tokens that characters start as, or -1
  CharBorders borders_;
  std::unique_ptr<std::atomic<uint8_t>[]> states_;  // [tokens] of State
};

}  // namespace reprise
