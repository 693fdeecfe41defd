// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <deque>
#include <span>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/devices/devices.h"
#include "model/layers/step.h"

namespace reprise {

namespace {

// What kept the ops that were asked for from being done.
Status TakeErrors(std::span<const OpContext> all) {
  Status first;
  for (const OpContext& one : all) {
    const Status refusal = one.scratch->TakeRefusal();
    const Status error = one.backend->TakeError();  // the refusal too, if it met it
    if (first.ok()) first = refusal.ok() ? error : refusal;
  }
  return first;
}

// What a step takes of the scratch of every device is given back at its end.
class StepScope {
 public:
  explicit StepScope(std::span<const OpContext> all) {
    for (const OpContext& one : all) scopes_.emplace_back(*one.scratch);
  }

 private:
  std::deque<ScratchScope> scopes_;
};

}  // namespace

std::span<const OpContext> Model::ContextsOf(const OpContext& context) const {
  return devices_ != nullptr ? devices_->all() : std::span(&context, 1);
}

DeviceMemory& Model::StateMemoryOf(const OpContext& context) const {
  return devices_ != nullptr ? devices_->memory() : context.backend->memory();
}

Status Model::Begin(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                    const StepResults& results) const {
  const std::span<const OpContext> all = ContextsOf(context);
  const StepScope scope(all);
  const Step step(all, batch, memory, placement_, weights_);
  REPRISE_TRY(TakeErrors(all));
  // Texts to embed come in all lengths, and the ends of prompts that are watched: no programs worth
  // keeping. An observer wants to see every op, and may wait for each. What goes from device to
  // device is no program of one. Vectors of pictures come and go.
  if (results.hidden.rows > 0 || !batch.watched.empty() || context.observer != nullptr ||
      devices_ != nullptr || !batch.pictures.empty()) {
    Run(step, results);
  } else {
    const StepProgram program = {this, results.logits, results.finite};
    context.backend->RunStep(*context.scratch, step.layout(), program, [&] { Run(step, results); });
  }
  Status error = TakeErrors(all);
  if (error.ok()) return error;
  for (const OpContext& one : all) {
    one.backend->memory().Synchronize();  // what was begun is at its end
  }
  if (error.code() != StatusCode::kResourceExhausted) return error;
  return DataLoss(error.message());
}

Status Model::Forward(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                      float* logits) const {
  const ScratchScope scope(*context.scratch);
  DeviceMemory& device = context.backend->memory();
  const int64_t rows = int64_t(batch.logit_rows.size());
  const size_t count = size_t(rows * vocab_size());
  // Where the device reaches the host's memory, logits go there at once.
  const DevicePtr<float> reached = count > 0 ? device.Reach(logits).As<float>() : nullptr;
  const DevicePtr<float> place = reached || count == 0 ? reached : context.scratch->Floats(count);
  StepResults results = {{place, rows, vocab_size(), vocab_size()}, nullptr};
  if (!batch.finite.empty()) results.finite = context.scratch->Take<uint8_t>(batch.finite.size());
  if (!batch.hidden.empty()) {
    const int64_t dim = card_.dim;
    CHECK(batch.hidden.size() == batch.tokens.size() * size_t(dim));
    results.hidden = {context.scratch->Floats(batch.hidden.size()), int64_t(batch.tokens.size()),
                      dim, dim};
  }
  REPRISE_TRY(Begin(context, batch, memory, results));
  if (!batch.hidden.empty()) device.DownloadArray<float>(batch.hidden, results.hidden.data);
  if (!reached && count > 0) device.DownloadArray<float>({logits, count}, place);
  if (results.finite) device.DownloadArray<uint8_t>(batch.finite, results.finite);
  return OkStatus();
}

void Model::Predict(const Step&, const ConstRows&, const StepResults&) const { CHECK(false); }

Status Model::Predict(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                      bool first, std::span<float> hidden, std::span<float> logits) const {
  const auto rows = int64_t(batch.tokens.size());
  const auto width = int64_t(logits.size()) / rows;
  CHECK(int64_t(logits.size()) == rows * width);
  CHECK(width == vocab_size() || (width == card_.common_tokens && width > 0));
  CHECK(card_.mtp_state && devices_ == nullptr && batch.sequences.size() == batch.tokens.size());
  CHECK(batch.logit_rows.size() == batch.tokens.size() &&
        hidden.size() == size_t(rows * card_.dim));
  const ScratchScope scope(*context.scratch);
  DeviceMemory& device = context.backend->memory();
  if (first) {
    const size_t offset = memory.layout->offset(*card_.mtp_state, 0);
    for (int64_t row = 0; row < rows; ++row) {
      const DevicePtr<std::byte> state = memory.state(batch.sequences[size_t(row)].state);
      device.DownloadArray<float>(hidden.subspan(size_t(row * card_.dim), size_t(card_.dim)),
                                  (state + int64_t(offset)).As<float>());
    }
  }
  const auto take = [&](int64_t cols) {
    return Rows{context.scratch->Floats(size_t(rows * cols)), rows, cols, cols};
  };
  const Rows before = take(card_.dim);
  StepResults results = {take(width), context.scratch->Take<uint8_t>(size_t(rows)),
                         take(card_.dim)};
  const Status refused = context.scratch->TakeRefusal();
  if (!refused.ok()) return refused;
  device.UploadArray<float>(before.data, hidden);
  const Step step(context, batch, memory, weights_);
  REPRISE_TRY(TakeErrors(std::span(&context, 1)));
  Predict(step, before, results);
  REPRISE_TRY(TakeErrors(std::span(&context, 1)));
  device.DownloadArray<float>(hidden, results.hidden.data);
  device.DownloadArray<float>(logits, results.logits.data);
  device.DownloadArray<uint8_t>(batch.finite, results.finite);
  return OkStatus();
}

}  // namespace reprise
