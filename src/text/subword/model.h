// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/piece.h"
#include "text/subword/bpe/merger.h"
#include "text/subword/bpe/piece_cache.h"

namespace reprise {

// Working memory of one Encode call, whatever the model. Empty until it is needed.
struct SubwordScratch {
  std::vector<int32_t> symbols;  // ids of a piece, before and after merging
  Merger merger;
  PieceCache cache;
  struct Step {  // of the best segmentation that ends here
    double score;
    uint32_t begin;
    int32_t id;
  };
  std::vector<Step> steps;
};

// SubwordModel turns pieces of text into token ids. Immutable and safe to share.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  // Appends the ids of the pieces of `text`, each encoded on its own.
  virtual void Encode(std::string_view text, std::span<const Piece> pieces, SubwordScratch* scratch,
                      std::vector<int32_t>* ids) const = 0;
};

}  // namespace reprise
