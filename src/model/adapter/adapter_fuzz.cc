// SPDX-License-Identifier: Apache-2.0
// Any bytes as an adapter: a GGUF file, or (behind a byte 0) a configuration, a byte 0 and
// safetensors. Refused in one sentence, or products whose tensors fit each other, which a small
// model takes or refuses.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "device/scratch.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "model/adapter/adapter.h"

namespace {

using namespace reprise;

// The weights of a layer of every order of rows.
AdaptableModel SmallModel() {
  static Matrix none;
  TensorPlan plan("model.");
  plan.AddMatrix(plan.Layer(0, "mlp.up_proj.weight", "ffn_up.weight"), 32, 16, &none);
  plan.AddMatrix(plan.Layer(0, "self_attn.q_proj.weight", "attn_q.weight"), 32, 16, &none)
      .head_rows = {HeadOrder::kRotary, false, 0, 2, 0, 16};
  plan.AddMatrix(plan.Global("embed_tokens.weight", "token_embd.weight"), 24, 16, &none).role =
      TensorRole::kEmbeddingAndHead;
  PlannedTensor& experts = plan.AddStack(
      plan.Layer(0, "mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight"), 2, 8, 16, &none);
  experts.routed = true;
  experts.fused = {plan.Layer(0, "mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight").hf,
                   "ffn_gate_up_exps.weight",
                   2 * 16,
                   {{2, 8, 8, 16}}};
  AdaptableModel model;
  model.tensors = plan.tensors();
  model.architectures = {"llama"};
  model.digest = "model";
  return model;
}

void Take(const Result<AdapterFile>& file) {
  static const AdaptableModel model = SmallModel();
  static ThreadPool pool(1);
  static const cpu::KernelTable table = *cpu::BuildTable("scalar");
  static cpu::CpuBackend backend(&pool, &table);
  static ScratchArena scratch;
  if (!file.ok()) return CHECK(!file.status().message().empty());
  for (const StoredLowRank& product : file->products()) {
    CHECK(product.down.shape.rank() == product.up.shape.rank());
  }
  const auto adapter = Adapter::Load(*file, 1, model, {&backend, &scratch});
  if (!adapter.ok()) return CHECK(!adapter.status().message().empty());
  CHECK((*adapter)->products().size() == model.tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size == 0 || data[0] != 0) {
    Take(AdapterFile::ParseGguf(bytes));
    return 0;
  }
  const uint8_t* end = std::find(data + 1, data + size, 0);
  const std::string_view config(reinterpret_cast<const char*>(data + 1), size_t(end - data - 1));
  const auto rest = bytes.subspan(size_t(std::min(end + 1, data + size) - data));
  Take(AdapterFile::ParsePeft(config, rest));
  return 0;
}
