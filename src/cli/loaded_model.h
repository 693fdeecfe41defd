// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/flags.h"
#include "device/buffer.h"
#include "device/thread_pool.h"
#include "kernels/op_context.h"
#include "model/model.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace reprise::cli {

// The options of every command that runs a model.
struct ModelOptions {
  std::string path;
  std::string kv = "f16";
  std::string weights;  // empty: as stored
  int threads = 0;      // 0: one per CPU
};
void AddModelOptions(Flags* flags, ModelOptions* options);

// A model with the threads and kernels that run it.
class LoadedModel {
 public:
  // Shows progress on stderr.
  static Result<std::unique_ptr<LoadedModel>> Load(const ModelOptions& options);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Model& model() const { return *model_; }
  OpContext context() { return {&pool_, table_, &scratch_}; }

 private:
  LoadedModel(Checkpoint checkpoint, int threads);

  Checkpoint checkpoint_;
  ThreadPool pool_;
  const cpu::KernelTable* table_;
  ScratchArena scratch_;
  std::unique_ptr<Model> model_;
};

}  // namespace reprise::cli
