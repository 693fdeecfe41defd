// SPDX-License-Identifier: Apache-2.0
#include "text/subword/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/subword/byte_token.h"
#include "text/unicode/classes.h"

namespace reprise {
namespace {

using Step = SubwordScratch::Step;

constexpr double kUnknownPenalty = 10;
constexpr int32_t kUnknown = -1;  // the id of a step over a character that is no token
constexpr uint32_t kUnreached = UINT32_MAX;

}  // namespace

Result<std::unique_ptr<Unigram>> Unigram::Make(const VocabSpec& spec) {
  if (spec.scores.empty()) return DataLoss("the unigram vocabulary has no scores");
  std::unique_ptr<Unigram> unigram(new Unigram);
  unigram->scores_ = spec.scores;
  unigram->unknown_id_ = spec.unknown_id;
  unigram->byte_ids_.fill(-1);
  std::vector<ByteTrie::Key> keys;
  double lowest = std::numeric_limits<double>::max();
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenKind kind = spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[id];
    const std::string_view text = spec.tokens[id];
    const int byte = spec.byte_fallback ? ParseByteToken(text) : -1;
    if (byte >= 0) {
      unigram->byte_ids_[byte] = static_cast<int32_t>(id);
    } else if (kind == TokenKind::kNormal || kind == TokenKind::kUserDefined) {
      keys.push_back({text, static_cast<int32_t>(id)});
      lowest = std::min(lowest, spec.scores[id]);
    }
  }
  unigram->trie_ = ByteTrie::Build(std::move(keys));
  unigram->unknown_score_ = lowest - kUnknownPenalty;
  const auto& bytes = unigram->byte_ids_;
  unigram->byte_fallback_ =
      std::none_of(bytes.begin(), bytes.end(), [](int32_t id) { return id < 0; });
  return unigram;
}

void Unigram::Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
                     std::vector<int32_t>* ids) const {
  for (const Piece piece : pieces) {
    EncodePiece(text.substr(piece.begin, piece.end - piece.begin), scratch, ids);
  }
}

// steps[i] becomes the last step of the best segmentation of the first i bytes.
void Unigram::FindBestSteps(std::string_view piece, std::vector<Step>* steps) const {
  steps->assign(piece.size() + 1, Step{0, kUnreached, kUnknown});
  const char* const end = piece.data() + piece.size();
  const auto offer = [&](size_t from, size_t to, double score, int32_t id) {
    Step& step = (*steps)[to];
    const double total = (*steps)[from].score + score;
    if (step.begin == kUnreached || total > step.score) {
      step = {total, static_cast<uint32_t>(from), id};
    }
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t length = unicode::DecodeChar(piece.data() + at, end).length;
    bool is_token = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = at; i < piece.size() && trie_.Step(&node, piece[i]); ++i) {
      const int32_t id = trie_.ValueAt(node);
      if (id < 0) continue;
      offer(at, i + 1, scores_[static_cast<size_t>(id)], id);
      is_token |= i + 1 == at + length;
    }
    if (!is_token) offer(at, at + length, unknown_score_, kUnknown);
    at += length;
  }
}

void Unigram::EncodePiece(std::string_view piece, SubwordScratch* scratch,
                          std::vector<int32_t>* ids) const {
  FindBestSteps(piece, &scratch->steps);
  const size_t first = ids->size();
  // Backwards along the steps, then turned round.
  for (size_t end = piece.size(); end > 0;) {
    const Step step = scratch->steps[end];
    if (step.id != kUnknown) {
      ids->push_back(step.id);
    } else if (byte_fallback_) {
      for (size_t i = end; i > step.begin; --i) {
        ids->push_back(byte_ids_[static_cast<uint8_t>(piece[i - 1])]);
      }
    } else if (unknown_id_ >= 0 && (ids->size() == first || ids->back() != unknown_id_)) {
      ids->push_back(unknown_id_);
    }
    end = step.begin;
  }
  std::reverse(ids->begin() + static_cast<ptrdiff_t>(first), ids->end());
}

}  // namespace reprise
