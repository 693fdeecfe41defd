// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

// MergeQueue orders the candidate merges of a long piece: by rank, then by position.
//
// A binary heap over all candidates would spend most of its time missing the cache (10 MB of one
// letter: 20 million of them). But candidates of one rank arrive almost in order of position, so
// each rank has a bucket: an array that is sorted once, when its turn comes, and rarely needs to
// be. What is pushed behind the point that an open bucket has reached goes to a small heap beside
// it.
//
// Costs: Push and Pop are O(1) in the usual order, O(log n) in any other.
// Thread safety: none.
class MergeQueue {
 public:
  // Empties the queue. Ranks are below `rank_count`.
  void Reset(size_t rank_count);

  void Push(uint32_t rank, uint32_t position);

  // Takes the first candidate; false if there is none.
  bool Pop(uint32_t* rank, uint32_t* position);

 private:
  struct Bucket {
    uint32_t rank = 0;
    bool open = false;   // its turn has come: entries before `next` are taken
    bool sorted = true;  // entries ascend
    size_t next = 0;
    std::vector<uint32_t> entries;
    std::vector<uint32_t> late;  // min-heap
  };

  std::vector<Bucket> buckets_;
  std::vector<uint32_t> bucket_of_rank_;  // index + 1; 0: none
  std::vector<uint32_t> free_;            // buckets without a rank
  std::vector<uint32_t> ranks_;           // min-heap of the ranks that have a bucket
};

}  // namespace reprise
