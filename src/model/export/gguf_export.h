// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "device/thread_pool.h"
#include "model/family.h"
#include "model/planned_source.h"
#include "model/tensor_plan.h"
#include "model/weight_mix.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf_writer.h"
#include "weights/progress.h"

namespace reprise {

// Where the weights of a new file come from, in the terms of Hugging Face files.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Whether every tensor of the plan is there, in its shape. `plan` must outlive the reading.
  virtual Status Check(const TensorPlan& plan) = 0;
  // Row `row` [cols] of the tensor. Thread safety: may be called from several threads.
  virtual void ReadRow(const PlannedTensor& tensor, int64_t row, float* out) const = 0;
  // What stands before names, for example "model.".
  virtual std::string prefix() const = 0;
};

// The tensors of a Hugging Face folder.
class CheckpointSource final : public TensorSource {
 public:
  // `checkpoint` must outlive this.
  explicit CheckpointSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  Status Check(const TensorPlan& plan) override;
  void ReadRow(const PlannedTensor& tensor, int64_t row, float* out) const override;
  std::string prefix() const override;

 private:
  const Checkpoint& checkpoint_;
  std::map<std::string, PlannedSource> sources_;  // by GGUF name
};

// Random weights: a function of the seed, the tensor's name and the element alone.
class RandomSource final : public TensorSource {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}
  Status Check(const TensorPlan&) override { return OkStatus(); }
  void ReadRow(const PlannedTensor& tensor, int64_t row, float* out) const override;
  std::string prefix() const override { return "model."; }

 private:
  uint64_t seed_;
};

// Writes a model as a GGUF file that llama.cpp reads, too: its names, its order of rotary rows and
// of value heads, norms as factors, decay as -exp(A_log). One pass, a few megabytes of memory.
//
// `writer` may already hold further metadata (a tokenizer); `model` is used up: its tensors have
// been declared.
struct GgufExport {
  const Family* family = nullptr;
  FamilyModel* model = nullptr;
  TensorSource* source = nullptr;
  WeightMix mix;
  std::string name;  // general.name
  std::string path;
  Progress::Listener progress;
  // The first few megabytes of each matrix again and again: for benchmarks, where values do not
  // matter and time does.
  bool repeated = false;
};
Status ExportGguf(const GgufExport& request, GgufWriter* writer, ThreadPool* pool);

}  // namespace reprise
