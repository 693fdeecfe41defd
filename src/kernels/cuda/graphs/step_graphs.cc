// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/graphs/step_graphs.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>

#include "device/raw.h"
#include "kernels/cuda/kernel.h"

namespace reprise::cuda {

StepGraphs::~StepGraphs() { Clear(); }

void StepGraphs::Clear() {
  memory_.Use();
  while (!entries_.empty()) Drop(entries_.begin());
}

void StepGraphs::Drop(std::list<Entry>::iterator entry) {
  if (entry->graph != nullptr) cudaGraphExecDestroy(entry->graph);
  entries_.erase(entry);
}

void StepGraphs::Run(ScratchArena& scratch, const StepLayout& step, const Launched& launched,
                     const StepProgram& program, const std::function<void()>& ops) {
  if (step.rows() > kRowsMax) return ops();
  const ScratchArena::Mark begin = scratch.mark();
  const Shape shape = {
      program.model,
      {Raw(program.logits.data), Raw(program.finite), Raw(step.device.tokens),
       Raw(step.device.sequences), Raw(step.device.blocks), Raw(step.device.taps),
       Raw(step.block_memory), Raw(step.state_memory), launched.arrays},
      {step.rows(), int64_t(step.host.sequences.size()), int64_t(step.host.logit_rows.size()),
       launched.depth.longest, launched.depth.row_groups, int64_t(launched.array_bytes),
       int64_t(step.block_bytes + step.state_bytes), int64_t(begin.chunk), int64_t(begin.used)},
      launched.adapters,
      launched.choices};
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& entry) { return entry.shape == shape; });
  if (found == entries_.end()) {
    entries_.push_front({shape});
    if (entries_.size() > kGraphsMax) Drop(std::prev(entries_.end()));
    return ops();
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (found->graph != nullptr || Record(&*found, scratch, ops)) {
    if (cudaGraphLaunch(found->graph, stream_) == cudaSuccess) return;
    cudaGetLastError();
  }
  // Without it the shape is a new one; and what others have may be what was missing.
  Drop(found);
  const size_t kept = entries_.size() / 2;
  while (entries_.size() > kept) Drop(std::prev(entries_.end()));
  ops();
}

// False: there is no graph, and nothing ran. A launch that did not start stays said. Memory that
// was refused is asked for again when the ops run by themselves: none is to be had while they are
// recorded.
bool StepGraphs::Record(Entry* entry, ScratchArena& scratch, const std::function<void()>& ops) {
  if (memory_.refusals().Refused() ||
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  ops();
  cudaGraph_t graph = nullptr;
  const bool whole = cudaStreamEndCapture(stream_, &graph) == cudaSuccess &&
                     !Launches::On(stream_).failed() && !scratch.refused();
  if (scratch.refused()) {
    (void)scratch.TakeRefusal();
    const Status error = Launches::On(stream_).Take();
    if (error.code() != StatusCode::kResourceExhausted) Launches::On(stream_).Fail(error);
  }
  const bool made = whole && cudaGraphInstantiate(&entry->graph, graph, 0) == cudaSuccess;
  if (!made) {
    entry->graph = nullptr;
    cudaGetLastError();
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  return made;
}

}  // namespace reprise::cuda
