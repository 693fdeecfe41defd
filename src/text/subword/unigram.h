// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/subword/byte_trie.h"
#include "text/subword/model.h"
#include "text/vocab/spec.h"

namespace reprise {

// Unigram is SentencePiece's language model of tokens: of all ways to cut a piece it takes the one
// with the highest sum of scores (Viterbi; of equals the one whose last token is the longest).
//
// A character that is no token has the lowest score minus 10 and becomes byte tokens or the unknown
// token, one for a run of such characters. Linear in the piece times the longest token.
class Unigram final : public SubwordModel {
 public:
  static Result<std::unique_ptr<Unigram>> Make(const VocabSpec& spec);

  void Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  Unigram() = default;
  void EncodePiece(std::string_view piece, SubwordScratch* scratch,
                   std::vector<int32_t>* ids) const;
  void FindBestSteps(std::string_view piece, std::vector<SubwordScratch::Step>* steps) const;

  ByteTrie trie_;  // value: id
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_id_ = -1;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace reprise
