// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>

#include "device/cuda/cuda_memory.h"
#include "kernels/backend.h"
#include "kernels/cuda/choice/choices.h"
#include "kernels/cuda/tensor/attention/attention.h"
#include "kernels/cuda/view.h"

struct CUgraphExec_st;

namespace reprise::cuda {

// The launches of a step as one: a step of few rows is some hundred kernels of a few microseconds,
// and asking for each costs as much as running it. What a step of a shape launches is recorded when
// the shape is seen for the second time, and asked for as one graph from then on.
//
// Two steps have one shape if every launch has the same sizes and addresses: the same program, the
// same counts, the same places, and the same place in the scratch memory from which ops take
// theirs. What differs between them (tokens, positions, block ids) is data that kernels read.
//
// Graphs take memory of the device. Where there is none for one more, the older half is given up,
// and the step's ops are asked for one by one: nothing is lost but time.
//
// Thread safety: none.
class StepGraphs {
 public:
  explicit StepGraphs(CudaMemory& memory) : memory_(memory), stream_(memory.stream()) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // What launches see beside the layout of a step.
  struct Launched {
    DepthView depth;
    const void* arrays = nullptr;  // of the step, as the host has them
    size_t array_bytes = 0;
    uint64_t adapters = 0;   // the shape of those of the rows (StepAdapters)
    Choices::Asked choices;  // none: not with the step
  };
  void Run(ScratchArena& scratch, const StepLayout& step, const Launched& launched,
           const StepProgram& program, const std::function<void()>& ops);
  // Gives up all graphs: the addresses in them are not what they were.
  void Clear();

  // Steps of more rows are not worth it: their kernels are long.
  static constexpr int64_t kRowsMax = 256;
  static constexpr size_t kGraphsMax = 64;

 private:
  struct Shape {
    const void* model;
    const void* places[9];
    int64_t counts[9];
    uint64_t adapters;
    Choices::Asked choices;

    bool operator==(const Shape&) const = default;
  };
  struct Entry {
    Shape shape;
    CUgraphExec_st* graph = nullptr;  // null: seen once
  };

  bool Record(Entry* entry, ScratchArena& scratch, const std::function<void()>& ops);
  void Drop(std::list<Entry>::iterator entry);

  CudaMemory& memory_;
  const Stream stream_;
  std::list<Entry> entries_;  // the latest first
};

}  // namespace reprise::cuda
