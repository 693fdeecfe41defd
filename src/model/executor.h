// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/choice_ops.h"
#include "model/layers/step.h"
#include "model/model.h"
#include "model/snapkv/keep_kv.h"
#include "model/vision/tower.h"

namespace reprise {

// What the engine runs a step on: a model behind a device, or a fake in tests.
//
// Thread safety: called by one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ModelCard& card() const = 0;
  // Threads that are idle between two calls of Forward, for whoever waits for the next; or null.
  virtual ThreadPool* pool() { return nullptr; }
  // Where the state of sequences lives.
  virtual DeviceMemory& memory() { return HostMemory(); }

  // As Model::Forward; fills batch.finite.
  virtual Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) = 0;

  // Executors whose device chooses tokens: Begin asks for the pass, whose logits stay where they
  // are, Choose waits for it, and must follow. Begin fails as Forward does. Choose fills
  // batch.finite of Begin, which must live so long, and chooses a token for each of its logit rows;
  // if it fails, the pass is done nevertheless. Where Begin was told of choices, with the same
  // ones. Before it waits it does `meanwhile`, once, unless it fails: the device is busy with the
  // step then, and asks nothing of the host.
  virtual bool chooses() const { return false; }
  virtual Status Begin(const BatchView&, const StateMemory&) {
    CHECK(chooses());
    return OkStatus();
  }
  using Work = std::function<void()>;
  virtual Status Choose(const ChoiceBatch&, const ChoiceResults&, const Work& /*meanwhile*/) {
    CHECK(chooses());
    return OkStatus();
  }

  // Executors with a tower (Model::tower) look at pictures: Begin and Advance of it. Null: none.
  virtual const VisionTower* tower() const { return nullptr; }
  virtual Result<std::unique_ptr<VisionTower::Look>> BeginLook(const Pixels&) {
    return FailedPrecondition("this model reads text only");
  }
  virtual Result<bool> AdvanceLook(VisionTower::Look*) {
    return FailedPrecondition("this model reads text only");
  }

  // Executors of a model with a block that predicts further tokens: Model::Predict.
  virtual Status Predict(const BatchView&, const StateMemory&, bool /*first*/,
                         std::span<float> /*hidden*/, std::span<float> /*logits*/) {
    CHECK(card().mtp_state.has_value());
    return Unimplemented("this executor predicts no further tokens");
  }

  // Executors that can leave out a part of a sequence's K/V (SnapKV): they fill batch.watched, and
  // Keep moves what stays together. Keep fails with kResourceExhausted, with nothing done, if there
  // is no memory for it; with kInternal, the K/V is lost.
  virtual bool keeps() const { return false; }
  virtual Status Keep(const KeptKv&, const StateMemory&) {
    CHECK(keeps());
    return OkStatus();
  }
};

// A model bound to the threads and kernels that run it. Both must outlive the executor.
class ModelExecutor : public Executor {
 public:
  ModelExecutor(const Model& model, const OpContext& context) : model_(model), context_(context) {}

  const ModelCard& card() const override { return model_.card(); }
  DeviceMemory& memory() override { return model_.StateMemoryOf(context_); }
  ThreadPool* pool() override { return &context_.backend->host_threads(); }
  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
    return model_.Forward(context_, batch, memory, logits);
  }
  bool chooses() const override { return context_.backend->chooses(); }
  Status Begin(const BatchView& batch, const StateMemory& memory) override;
  Status Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                const Work& meanwhile) override;
  const VisionTower* tower() const override { return model_.tower(); }
  Result<std::unique_ptr<VisionTower::Look>> BeginLook(const Pixels& pixels) override {
    CHECK(tower() != nullptr);
    return tower()->Begin(context_, pixels);
  }
  Result<bool> AdvanceLook(VisionTower::Look* look) override { return look->Advance(context_); }
  Status Predict(const BatchView& batch, const StateMemory& memory, bool first,
                 std::span<float> hidden, std::span<float> logits) override {
    return model_.Predict(context_, batch, memory, first, hidden, logits);
  }
  bool keeps() const override { return context_.backend->keeps(); }
  Status Keep(const KeptKv& kept, const StateMemory& memory) override {
    return KeepKv(model_.ContextsOf(context_), model_.state_spec(), memory, kept);
  }

 private:
  const Model& model_;
  const OpContext context_;
  // Between Begin and Choose: logits, then the finite flags. Grows and stays, so that steps of one
  // shape leave their results in one place.
  DeviceBuffer results_;
  Rows logits_;
  DevicePtr<uint8_t> flags_;
  std::span<uint8_t> finite_;  // where they go
};

inline Status ModelExecutor::Begin(const BatchView& batch, const StateMemory& memory) {
  CHECK(batch.hidden.empty());
  const int64_t vocab = model_.vocab_size();
  const int64_t rows = int64_t(batch.logit_rows.size());
  const size_t logit_bytes = size_t(rows * vocab) * sizeof(float);
  const size_t bytes = logit_bytes + batch.sequences.size();
  if (results_.size() < bytes) {
    // Room for some more, or at least for this.
    auto grown = context_.backend->memory().Allocate(bytes + bytes / 2);
    if (!grown.ok()) grown = context_.backend->memory().Allocate(bytes);
    if (!grown.ok()) return grown.status().Annotate("there is no memory for logits");
    results_ = std::move(*grown);
  }
  logits_ = {results_.data().As<float>(), rows, vocab, vocab};
  flags_ = (results_.data() + int64_t(logit_bytes)).As<uint8_t>();
  finite_ = batch.finite;
  return model_.Begin(context_, batch, memory, {logits_, flags_});
}

inline Status ModelExecutor::Choose(const ChoiceBatch& batch, const ChoiceResults& results,
                                    const Work& meanwhile) {
  ChoiceResults all = results;
  all.flags = finite_;
  all.flags_at = flags_;
  const Status chosen = ChooseTokens(context_, logits_, batch, all, meanwhile);
  const bool came = chosen.ok() && !batch.rows.empty();
  if (!came) context_.backend->memory().DownloadArray<uint8_t>(finite_, flags_);
  return chosen;
}

}  // namespace reprise
