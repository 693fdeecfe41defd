// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "device/background.h"
#include "device/memory.h"
#include "model/executor.h"
#include "model/snapkv/keep_list.h"
#include "state/batch.h"

namespace reprise {

// Compaction is what SnapKV does to one running sequence: it watches the queries of a window, and
// when the sequence has come to the end of it, says which rows of K/V stay. The first window ends
// with the prompt; with SnapKv::redecode others follow.
//
// Where windows lie depends on the length of the prompt and on the options alone, and they are
// always run, whatever is stored of the prompt: a request gives the same reply however its tokens
// came into steps. A sequence that is sent back begins again.
//
// Thread safety: none.
class Compaction {
 public:
  // None: the prompt is short enough.
  static std::optional<Compaction> Make(const StateSpec& spec, const SnapKv& options,
                                        int32_t prompt_tokens);

  int32_t window() const { return options_.window; }
  // Where the sequence is compacted (next); INT32_MAX: it is not any more.
  int32_t at() const { return at_; }
  // Rows that it may run, once it is compacted if it has come so far: steps end where windows do.
  int32_t RowsFrom(int32_t position) const;
  int32_t kept() const { return kept_; }
  // Rows from that position on that no window has: drafts may be among them.
  int32_t UnwatchedFrom(int32_t position) const {
    return position < at_ ? std::max(0, at_ - options_.window - position) : 0;
  }

  // Which of `rows` more tokens are watched, and memory for what they say: in the current step.
  // Fails with kResourceExhausted if the device has none.
  Result<std::optional<WatchedRows>> Watch(Executor& executor, Extent past, int32_t rows);

  // Begins to choose the rows that stay, unless that has begun: on `background` where the executor
  // has threads (they compute the steps of others meanwhile), else at once.
  // REQUIRES: the sequence is where at() says, and its window was watched.
  void Choose(Executor& executor, Background* background);
  bool begun() const { return choice_ != nullptr; }
  bool chosen() const { return choice_ != nullptr && choice_->done; }
  // The rows that stay, of every list: [lists, kept()]. REQUIRES: chosen().
  const std::vector<int32_t>& Lists() const { return choice_->lists; }
  // They were moved: on to the next window.
  void Done();

 private:
  // What is chosen from; it outlives a sequence that ends meanwhile.
  struct Choice {
    std::unique_ptr<float[]> weights;  // [lists, rows]
    size_t list_count = 0;
    size_t rows = 0;
    size_t kept = 0;
    int32_t window = 0;
    std::vector<int32_t> lists;  // [lists, kept]
    std::atomic<bool> done{false};

    void Run();
  };

  Compaction(const SnapKv& options, int32_t prompt_tokens, int32_t kept, size_t list_count)
      : options_(options),
        at_(prompt_tokens),
        rows_(prompt_tokens),
        kept_(kept),
        list_count_(list_count) {}

  int32_t Next() const;  // behind at()

  SnapKv options_;
  int32_t at_;    // position of the sequence,
  int32_t rows_;  // rows of K/V that it has then,
  int32_t kept_;  // and of those that stay
  size_t list_count_;
  DeviceBuffer weights_;            // [lists, rows_] while the window is run
  std::shared_ptr<Choice> choice_;  // once the window was run
};

}  // namespace reprise
