// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/served_model.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/loaded_model.h"
#include "cli/serve/fleet/device_budgets.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/served_text.h"
#include "engine/engine.h"
#include "events/publisher.h"
#include "http/router.h"
#include "model/executor.h"

namespace reprise::cli {

// The name and the aliases that a model is served under: the first alias that is a name, or the
// name of its file.
api::ModelBrief NameModel(const ServeOptions& options, const std::string& path);

// Runs steps on a model whose weights may go. The engine asks it for a step only while they are
// there (Engine::Sleep); what it says of itself it always knows.
class WakingExecutor final : public Executor {
 public:
  // Before anything else.
  void Bind(LoadedModel* loaded);
  // On the engine's thread.
  void Sleep();
  Status Wake();

  const ModelCard& card() const override { return loaded_->card(); }
  DeviceMemory& memory() override { return loaded_->memory(); }
  ThreadPool* pool() override { return &loaded_->backend().host_threads(); }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override;
  bool chooses() const override { return loaded_->backend().chooses(); }
  Status Begin(const BatchView& batch, const StateMemory& memory) override;
  Status Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                const Work& meanwhile) override;
  const VisionTower* tower() const override { return awake_ ? awake_->tower() : nullptr; }
  Result<std::unique_ptr<VisionTower::Look>> BeginLook(const Pixels& pixels) override {
    return awake_->BeginLook(pixels);
  }
  Result<bool> AdvanceLook(VisionTower::Look* look) override { return awake_->AdvanceLook(look); }
  Status Predict(const BatchView& batch, const StateMemory& memory, bool first,
                 std::span<float> hidden, std::span<float> logits) override {
    return awake_->Predict(batch, memory, first, hidden, logits);
  }
  bool keeps() const override { return loaded_->backend().keeps(); }
  Status Keep(const KeptKv& kept, const StateMemory& memory) override;

 private:
  LoadedModel* loaded_ = nullptr;
  std::optional<ModelExecutor> awake_;
};

// One model of the server, in the order in which it is built: its weights, its text, its engine
// with the state that requests leave, its APIs. Its weights may sleep; all else stays, so that a
// conversation goes on from its state when they are back.
//
// Thread safety: Sleep, Wake and SetStateBudget from one thread at a time; the rest from any.
class ModelStack {
 public:
  // What the models of a server have in common. All of it outlives them.
  struct Shared {
    const Clock* clock = nullptr;
    api::ServiceOptions service;  // without what is the model's
    int model_count = 1;          // that share disk and host memory
    // Further ones may come; they have no part of the disk until the next start.
    bool grows = false;
    std::function<void(std::function<void()>)> later;  // runs idle work on a worker
    // The responses that clients may continue. Asked for behind the first model's tiers, which say
    // whether the folder on the disk may be used.
    std::function<Result<std::shared_ptr<api::responses::ResponseStore>>()> responses;
    DeviceBudgets budgets;  // of weights and states of all models
  };
  // What a model will take on its device, as far as its files tell before it is read.
  struct Needs {
    size_t weight_bytes = 0;
    size_t state_bytes = 0;  // of one request
  };
  static Result<Needs> Foresee(const ServeOptions& options);

  static Result<std::unique_ptr<ModelStack>> Build(const ServeOptions& options,
                                                   const Shared& shared);
  ~ModelStack();
  void Stop();

  // Asks that the weights go as soon as nothing needs them; `asleep` is called then, on another
  // thread. Requests that come wait.
  void Sleep(std::function<void()> asleep);
  // Has the weights read again if they are gone; blocks for as long as that takes.
  Status Wake();
  // Moves the budget of the state towards `bytes`, and waits for it. Returns what it came to.
  size_t SetStateBudget(size_t bytes);

  const api::ServedModel& served() const { return served_; }
  // What the model takes while it is awake: weights, and memory to compute in.
  size_t awake_bytes() const;
  size_t least_state_bytes() const { return least_state_bytes_; }
  // What cached and running state takes now, as of the last step.
  size_t state_bytes() const;

  LoadedModel& loaded() { return *loaded_; }
  Engine& engine() { return *engine_; }
  api::Service& service() { return *service_; }
  // The routes of its APIs: the same for every model, in the same order.
  const http::Router& router() const { return router_; }

 private:
  explicit ModelStack(const ServeOptions& options) : options_(options) {}
  Status LoadText();
  Status OpenEyes();
  Status LoadAdapters();
  Status BuildEngine(const Shared& shared);
  Result<SnapKv> ReadSnapKv() const;
  Result<SpeculationOptions> MakeSpeculation(const CacheOptions& cache, const Shared& shared,
                                             size_t free_bytes, size_t* bytes);
  Status OpenEvents(StateCache* cache);

  const ServeOptions options_;
  std::unique_ptr<LoadedModel> loaded_;
  ServedText text_;
  api::ServedModel served_;
  std::unique_ptr<AdapterShelf> adapters_;       // null: the device computes none
  SamplingParams sampling_ = DefaultSampling();  // where a request does not say
  WakingExecutor executor_;
  std::unique_ptr<EventPublisher> events_;  // the engine's cache tells it
  std::unique_ptr<DraftModel> draft_;       // null: none
  size_t least_state_bytes_ = 0;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<api::Service> service_;
  http::Router router_;
};

}  // namespace reprise::cli
