// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step_graphs.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.h"
#include "device/raw.h"

namespace reprise::cuda {

StepGraphs::~StepGraphs() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
}

void StepGraphs::Run(const ScratchArena& scratch, const StepLayout& step, const Launched& launched,
                     const StepProgram& program, const std::function<void()>& ops) {
  if (step.rows() > kRowsMax) return ops();
  const ScratchArena::Mark begin = scratch.mark();
  const Shape shape = {
      program.model,
      {Raw(program.logits.data), Raw(program.finite), Raw(step.device.tokens),
       Raw(step.device.sequences), Raw(step.device.blocks), Raw(step.device.taps),
       Raw(step.block_memory), Raw(step.state_memory), launched.arrays},
      {step.rows(), int64_t(step.host.sequences.size()), int64_t(step.host.logit_rows.size()),
       launched.longest, int64_t(launched.array_bytes),
       int64_t(step.block_bytes + step.state_bytes), int64_t(begin.chunk), int64_t(begin.used)},
      launched.choices};
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& entry) { return entry.shape == shape; });
  if (found == entries_.end()) {
    entries_.push_front({shape});
    if (entries_.size() > kGraphsMax) {
      if (entries_.back().graph != nullptr) cudaGraphExecDestroy(entries_.back().graph);
      entries_.pop_back();
    }
    return ops();
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (found->graph == nullptr) Record(&*found, ops);
  CHECK(cudaGraphLaunch(found->graph, stream_) == cudaSuccess);
}

void StepGraphs::Record(Entry* entry, const std::function<void()>& ops) {
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  ops();
  CHECK(cudaStreamEndCapture(stream_, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&entry->graph, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
}

}  // namespace reprise::cuda
