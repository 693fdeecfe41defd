// SPDX-License-Identifier: Apache-2.0
// Choosing tokens: parameters go to the device as one piece, choices come back as one. What has no
// parameters is written to the host's memory at once: every copy is something to wait for.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/views.h"

namespace reprise::cuda {
namespace {

// Rows that share a workspace at a time: it holds some values for every token of each.
constexpr int64_t kRowsAtOnce = 16;
constexpr size_t kAlignment = 256;

size_t Padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

ChoiceNeeds NeedsOf(const ChoiceBatch& batch) {
  ChoiceNeeds needs;
  for (const ChoiceRow& row : batch.rows) {
    needs.adjusted |= row.bias_count > 0 || row.said_count > 0 || row.mask >= 0;
    needs.drawn |= row.temperature > 0;
    needs.logprobs |= row.logprobs >= 0;
  }
  return needs;
}

}  // namespace

// Nobody wants more than the largest. It may have been asked for with the step.
Status CudaBackend::ChooseLargest(ScratchArena& scratch, const ConstRows& logits,
                                  const ChoiceResults& results,
                                  const std::function<void()>& meanwhile) {
  if (!std::exchange(told_with_step_, false)) {
    const size_t workspace_bytes = LargestWorkspace(logits.rows, logits.cols);
    REPRISE_TRY(scratch.Provide(workspace_bytes + kAlignment));
    REPRISE_TRY(told_.Prepare(logits.rows, int64_t(results.flags.size())));
    told_.Ask(stream(), ViewOf(logits), {}, Raw(results.flags_at),
              Raw(scratch.Take<std::byte>(workspace_bytes)));
  }
  if (meanwhile) meanwhile();
  told_.Take(memory_->stream(), results);
  upload_.Settle();  // the step in front has read it
  return OkStatus();
}

Status CudaBackend::ChooseTokens(ScratchArena& scratch, const ConstRows& logits,
                                 const ChoiceBatch& batch, const ChoiceResults& results,
                                 const std::function<void()>& meanwhile) {
  const ScratchScope scope(scratch);
  const ChoiceNeeds needs = NeedsOf(batch);
  if (needs.none()) return ChooseLargest(scratch, logits, results, meanwhile);
  CHECK(!told_with_step_);  // the step was said to need no more
  const int64_t at_once = std::min(logits.rows, kRowsAtOnce);
  const size_t workspace_bytes = ChooseWorkspace(at_once, logits.cols, needs);
  const size_t sent = Padded(batch.rows.size_bytes()) + Padded(batch.biases.size_bytes()) +
                      Padded(batch.said.size_bytes()) + Padded(batch.masks.size_bytes());
  const size_t chosen_bytes = Padded(results.chosen.size_bytes());
  const size_t back = chosen_bytes + Padded(results.listed.size_bytes());
  REPRISE_TRY(scratch.Provide(workspace_bytes + sent + back + 4 * kAlignment));
  REPRISE_TRY(choices_sent_.Prepare(sent));
  REPRISE_TRY(choices_back_.Prepare(back + results.flags.size()));

  std::byte* const to = Raw(scratch.Take<std::byte>(sent));
  std::byte* const from = Raw(scratch.Take<std::byte>(back));
  std::byte* const workspace = Raw(scratch.Take<std::byte>(workspace_bytes + kAlignment));
  size_t offset = 0;
  const auto put = [&]<typename T>(std::span<const T> values) {
    if (!values.empty()) {
      std::memcpy(choices_sent_.data() + offset, values.data(), values.size_bytes());
    }
    const T* place = reinterpret_cast<const T*>(to + offset);
    offset += Padded(values.size_bytes());
    return place;
  };
  ChoiceView view;
  view.chosen = reinterpret_cast<ChosenToken*>(from);
  view.listed = reinterpret_cast<ListedToken*>(from + chosen_bytes);
  view.logprobs_max = batch.logprobs_max;
  view.rows = put(batch.rows);
  view.biases = put(batch.biases);
  view.said = put(batch.said);
  view.masks = put(batch.masks);
  CHECK(cudaMemcpyAsync(to, choices_sent_.data(), sent, cudaMemcpyHostToDevice, stream()) ==
        cudaSuccess);
  for (int64_t row = 0; row < logits.rows; row += at_once) {
    View part = ViewOf(logits);
    part.data += row * part.stride;
    part.rows = std::min(at_once, logits.rows - row);
    ChoiceView rows = view;
    rows.rows += row;
    rows.chosen += row;
    rows.listed += row * batch.logprobs_max;
    cuda::ChooseTokens(
        stream(), part, rows, needs,
        workspace + (kAlignment - reinterpret_cast<uintptr_t>(workspace) % kAlignment));
  }
  const auto bring = [&](size_t place, const void* source, size_t bytes) {
    if (bytes == 0) return;
    CHECK(cudaMemcpyAsync(choices_back_.data() + place, source, bytes, cudaMemcpyDeviceToHost,
                          stream()) == cudaSuccess);
  };
  bring(0, from, back);
  bring(back, Raw(results.flags_at), results.flags.size());
  if (meanwhile) meanwhile();
  memory_->Synchronize();
  upload_.Settle();
  std::memcpy(results.chosen.data(), choices_back_.data(), results.chosen.size_bytes());
  if (!results.listed.empty()) {
    std::memcpy(results.listed.data(), choices_back_.data() + chosen_bytes,
                results.listed.size_bytes());
  }
  if (!results.flags.empty()) {
    std::memcpy(results.flags.data(), choices_back_.data() + back, results.flags.size());
  }
  return OkStatus();
}

}  // namespace reprise::cuda
