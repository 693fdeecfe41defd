// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "device/scratch.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/ops.h"
#include "model/export/gguf_export.h"
#include "model/family.h"
#include "model/live_state.h"
#include "model/load.h"
#include "model/model.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf_writer.h"
#include "weights/format/safetensors.h"

// What tests of models share: a model with threads and kernels of its own, and goldens.
namespace reprise {

// A machine to run on: threads, kernels, scratch.
class TestMachine {
 public:
  explicit TestMachine(int threads = 2, const std::string& isas = "all")
      : pool_(threads), table_(*cpu::BuildTable(isas)), backend_(&pool_, &table_) {}
  OpContext context() { return {&backend_, &scratch_}; }

 private:
  ThreadPool pool_;
  cpu::KernelTable table_;
  cpu::CpuBackend backend_;
  ScratchArena scratch_;
};

// The logits of every token when `tokens` are run in pieces of the given lengths (their sum is
// the number of tokens).
inline std::vector<float> RunInPieces(const Model& model, const OpContext& context,
                                      std::span<const TokenId> tokens,
                                      std::span<const size_t> pieces) {
  auto state = LiveState::Create(model.state_spec(), 1, int64_t(tokens.size()),
                                 model.StateMemoryOf(context));
  CHECK(state.ok());
  std::vector<float> logits(tokens.size() * size_t(model.vocab_size()));
  size_t done = 0;
  for (const size_t piece : pieces) {
    std::vector<uint32_t> rows(piece);
    for (uint32_t i = 0; i < piece; ++i) rows[i] = i;
    const SequenceSlice slice = state->Next(0, 0, uint32_t(piece));
    const Status run =
        model.Forward(context, {tokens.subspan(done, piece), std::span(&slice, 1), rows},
                      state->memory(), logits.data() + done * size_t(model.vocab_size()));
    CHECK(run.ok());
    state->Advance(0, int64_t(piece));
    done += piece;
  }
  CHECK(done == tokens.size());
  return logits;
}

inline std::vector<float> RunWhole(const Model& model, const OpContext& context,
                                   std::span<const TokenId> tokens) {
  const size_t all = tokens.size();
  return RunInPieces(model, context, tokens, std::span(&all, 1));
}

// Greedy continuation of `tokens` by `count` tokens, decoding one by one.
inline std::vector<TokenId> Continue(const Model& model, const OpContext& context,
                                     std::vector<TokenId> tokens, size_t count) {
  auto state = LiveState::Create(model.state_spec(), 1, int64_t(tokens.size() + count),
                                 model.StateMemoryOf(context));
  CHECK(state.ok());
  std::vector<float> logits(size_t(model.vocab_size()));
  std::vector<TokenId> result;
  while (result.size() < count) {
    const uint32_t last = uint32_t(tokens.size() - 1);
    const SequenceSlice slice = state->Next(0, 0, uint32_t(tokens.size()));
    const Status run = model.Forward(context, {tokens, std::span(&slice, 1), std::span(&last, 1)},
                                     state->memory(), logits.data());
    CHECK(run.ok());
    state->Advance(0, int64_t(tokens.size()));
    result.push_back(TokenId(ArgMax(logits)));
    tokens = {result.back()};
  }
  return result;
}

// Writes a Hugging Face checkpoint as a GGUF file, without a tokenizer; `add` may add metadata.
inline void ConvertToGguf(const Checkpoint& checkpoint, const char* type, const std::string& path,
                          const std::function<void(GgufWriter*)>& add = nullptr) {
  const auto family = FindFamily(false, checkpoint.architecture());
  CHECK(family.ok());
  const auto made = MakeModel(checkpoint, {*family, DType::kF16, 0, /*mtp=*/true});
  CHECK(made.ok());
  CheckpointSource source(checkpoint);
  ThreadPool pool(1);
  GgufWriter writer;
  if (add) add(&writer);
  GgufExport request;
  request.family = *family;
  request.model = made->model.get();
  request.source = &source;
  request.mix = *FindWeightMix(type);
  request.name = "test";
  request.path = path;
  const Status status = ExportGguf(request, &writer, &pool);
  ASSERT_TRUE(status.ok()) << status.message();
}

struct Golden {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [tokens, vocabulary]
  std::vector<TokenId> greedy;
};

inline Golden ReadGolden(const std::string& path, const char* name = "logits") {
  auto file = MappedFile::Open(path);
  CHECK(file.ok());
  auto tensors = SafetensorsFile::Parse(file->bytes());
  CHECK(tensors.ok());
  const StoredTensor* logits = tensors->Find(name);
  CHECK(logits != nullptr && logits->dtype == DType::kF32);
  Golden golden{*tensors->ReadIds("tokens"), std::vector<float>(size_t(logits->shape.elements())),
                *tensors->ReadIds("greedy")};
  std::memcpy(golden.logits.data(), logits->bytes.data(), logits->bytes.size());
  return golden;
}

}  // namespace reprise
