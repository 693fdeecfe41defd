// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"
#include "model/model.h"

namespace reprise {

// What the engine sees of a model: a forward pass on whatever device, threads and kernels it is
// bound to. Simulations put a fake in its place.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ModelCard& card() const = 0;

  // Threads that others may use between two forward passes; null: none.
  virtual ThreadPool* pool() { return nullptr; }
  // Where the state of its sequences has to lie.
  virtual DeviceMemory& memory() { return HostMemory(); }

  // As Model::Forward; fills batch.finite.
  virtual Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) = 0;
};

// A model bound to the threads and kernels that run it. Both must outlive the executor.
class ModelExecutor : public Executor {
 public:
  ModelExecutor(const Model& model, const OpContext& context) : model_(model), context_(context) {}

  const ModelCard& card() const override { return model_.card(); }
  DeviceMemory& memory() override { return context_.backend->memory(); }
  ThreadPool* pool() override { return &context_.backend->host_threads(); }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
    return model_.Forward(context_, batch, memory, logits);
  }

 private:
  const Model& model_;
  const OpContext context_;
};

}  // namespace reprise
