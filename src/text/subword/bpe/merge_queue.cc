// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/merge_queue.h"

#include <algorithm>
#include <functional>

namespace reprise {
namespace {

constexpr std::greater<uint32_t> kMinHeap;

void PushHeap(uint32_t value, std::vector<uint32_t>* heap) {
  heap->push_back(value);
  std::push_heap(heap->begin(), heap->end(), kMinHeap);
}

void PopHeap(std::vector<uint32_t>* heap) {
  std::pop_heap(heap->begin(), heap->end(), kMinHeap);
  heap->pop_back();
}

}  // namespace

void MergeQueue::Reset(size_t rank_count) {
  if (bucket_of_rank_.size() != rank_count) {
    bucket_of_rank_.assign(rank_count, 0);
    ranks_.clear();
    buckets_.clear();
    free_.clear();
  }
  uint32_t rank = 0;
  uint32_t position = 0;
  while (Pop(&rank, &position)) {
  }
}

void MergeQueue::Push(uint32_t rank, uint32_t position) {
  uint32_t& slot = bucket_of_rank_[rank];
  if (slot == 0) {
    if (free_.empty()) {
      buckets_.emplace_back();
      free_.push_back(static_cast<uint32_t>(buckets_.size() - 1));
    }
    slot = free_.back() + 1;
    free_.pop_back();
    buckets_[slot - 1].rank = rank;
    PushHeap(rank, &ranks_);
  }
  Bucket& bucket = buckets_[slot - 1];
  const bool behind = !bucket.entries.empty() && position < bucket.entries.back();
  if (behind && bucket.open) {
    PushHeap(position, &bucket.late);
  } else {
    bucket.sorted = bucket.sorted && !behind;
    bucket.entries.push_back(position);
  }
}

bool MergeQueue::Pop(uint32_t* rank, uint32_t* position) {
  while (!ranks_.empty()) {
    const uint32_t index = bucket_of_rank_[ranks_.front()] - 1;
    Bucket& bucket = buckets_[index];
    if (!bucket.open) {
      if (!bucket.sorted) std::sort(bucket.entries.begin(), bucket.entries.end());
      bucket.open = true;
      bucket.sorted = true;
    }
    const bool more = bucket.next < bucket.entries.size();
    *rank = bucket.rank;
    if (!bucket.late.empty() && (!more || bucket.late.front() < bucket.entries[bucket.next])) {
      *position = bucket.late.front();
      PopHeap(&bucket.late);
      return true;
    }
    if (more) {
      *position = bucket.entries[bucket.next++];
      return true;
    }
    // Exhausted: the bucket serves another rank. Large arrays are given back.
    static constexpr size_t kKeptEntries = 4096;
    bucket.entries.clear();
    if (bucket.entries.capacity() > kKeptEntries) std::vector<uint32_t>().swap(bucket.entries);
    bucket.open = false;
    bucket.next = 0;
    bucket_of_rank_[bucket.rank] = 0;
    free_.push_back(index);
    PopHeap(&ranks_);
  }
  return false;
}

}  // namespace reprise
