// SPDX-License-Identifier: Apache-2.0
// What SnapKV sees and keeps of a prompt, for an implementation of its own (snapkv_oracle_test.py).
//
//   snapkv_probe MODEL TOKENS BUDGET WINDOW KV
//
// runs the `tokens` of a safetensors file, whole, with K/V of type f32, f16, bf16 or q8_0, and
// writes one JSON object: {"tokens", "kept", "window", "layers": [{"kv_heads", "head_dim", "scale",
// "softcap", "q": [window rows], "k": [token rows]}], "lists": [[kept rows], ...]}. Queries are
// those that attention takes: behind norm and RoPE, not scaled. Keys are read from where they are
// stored.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "device/scratch.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "model/live_state.h"
#include "model/load.h"
#include "model/snapkv/keep_list.h"
#include "tensor/half.h"
#include "tensor/kv_row.h"
#include "weights/checkpoint.h"
#include "weights/format/safetensors.h"

namespace reprise {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

struct Layer {
  KvShape shape;
  AttentionParams params;
  std::vector<std::vector<float>> q;
};

// Keeps the queries that keys are weighed against.
class Recorder : public OpObserver {
 public:
  explicit Recorder(DeviceMemory* memory) : memory_(memory) {}
  void Begin(std::string_view) override {}
  void End() override {}
  void Scores(const KvShape& shape, const AttentionParams& params, const ConstRows& q,
              const ScoredRows& rows) override {
    Layer& layer = layers.emplace_back();
    layer.shape = shape;
    layer.params = params;
    for (int32_t r = 0; r < rows.row_count; ++r) {
      std::vector<float>& row = layer.q.emplace_back(static_cast<size_t>(q.cols));
      memory_->DownloadArray<float>(row, q.data + (rows.row_begin + r) * q.stride);
    }
  }
  std::vector<Layer> layers;

 private:
  DeviceMemory* memory_;
};

// Channel `channel` of row `row` of the keys of a head, which begin at `at`.
float KeyAt(const std::byte* at, const KvShape& shape, int channel, int row) {
  const int index = channel * kBlockTokens + row;
  if (shape.dtype == DType::kF32) return reinterpret_cast<const float*>(at)[index];
  if (shape.dtype == DType::kQ8_0) {
    const auto* scales = reinterpret_cast<const uint16_t*>(at + shape.head_dim * kBlockTokens);
    const int scale = channel / kKvGroup * kBlockTokens + row;
    return F16ToF32(F32ToF16(F16ToF32(scales[scale]) * float(static_cast<int8_t>(at[index]))));
  }
  const uint16_t bits = reinterpret_cast<const uint16_t*>(at)[index];
  return shape.dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

void WriteRow(const std::vector<float>& row, JsonWriter* json) {
  json->BeginArray();
  for (const float value : row) json->Double(static_cast<double>(value));
  json->EndArray();
}

void WriteKeys(const Layer& layer, size_t offset, const LiveState& state, DeviceMemory& memory,
               JsonWriter* json) {
  const StateMemory where = state.memory();
  const size_t head_bytes = kBlockTokens * KvRowBytes(layer.shape.dtype, layer.shape.head_dim);
  std::vector<std::byte> block(where.layout->block_bytes());
  for (int32_t row = 0; row < state.extent(0).physical; ++row) {
    const BlockId id = state.blocks(0)[static_cast<size_t>(row / kBlockTokens)];
    if (row % kBlockTokens == 0) memory.Download(block.data(), where.block(id), block.size());
    std::vector<float> key;
    for (int head = 0; head < layer.shape.kv_heads; ++head) {
      const std::byte* at = block.data() + offset + size_t(head) * head_bytes;
      for (int c = 0; c < layer.shape.head_dim; ++c) {
        key.push_back(KeyAt(at, layer.shape, c, row % kBlockTokens));
      }
    }
    WriteRow(key, json);
  }
}

std::vector<TokenId> ReadTokens(const char* path) {
  const MappedFile file = Must(MappedFile::Open(path));
  return Must(Must(SafetensorsFile::Parse(file.bytes())).ReadIds("tokens"));
}

void Write(const Model& model, const std::vector<Layer>& layers, const LiveState& state,
           const SnapKv& options, const std::vector<float>& weights, DeviceMemory& memory) {
  const int32_t rows = state.extent(0).physical;
  const int32_t kept = KeptTokens(model.state_spec(), options, rows);
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("tokens", rows).Member("kept", kept).Member("window", options.window);
  json.Key("layers").BeginArray();
  size_t next = 0;
  for (size_t index = 0; index < model.state_spec().layers.size(); ++index) {
    if (model.state_spec().layers[index].kind != StateKind::kFullKv) continue;
    const Layer& layer = layers[next++];
    json.BeginObject().Member("kv_heads", layer.shape.kv_heads);
    json.Member("head_dim", layer.shape.head_dim);
    json.Member("scale", static_cast<double>(layer.params.scale));
    json.Member("softcap", static_cast<double>(layer.params.softcap));
    json.Key("q").BeginArray();
    for (const auto& row : layer.q) WriteRow(row, &json);
    json.EndArray().Key("k").BeginArray();
    WriteKeys(layer, state.memory().layout->offset(index, 0), state, memory, &json);
    json.EndArray().EndObject();
  }
  CHECK(next == layers.size());
  json.EndArray().Key("lists").BeginArray();
  for (size_t list = 0; list * size_t(rows) < weights.size() && kept < rows; ++list) {
    std::vector<int32_t> chosen(static_cast<size_t>(kept));
    ChooseKept(std::span(weights).subspan(list * size_t(rows), size_t(rows)), options.window,
               chosen);
    json.BeginArray();
    for (const int32_t row : chosen) json.Int(row);
    json.EndArray();
  }
  json.EndArray().EndObject();
  std::puts(text.c_str());
}

void Probe(char** argv) {
  const std::vector<TokenId> tokens = ReadTokens(argv[2]);
  SnapKv options;
  options.budget = std::atoi(argv[3]);
  options.window = std::atoi(argv[4]);
  const std::string kv = argv[5];
  ThreadPool pool(1);
  const cpu::KernelTable table = *cpu::BuildTable("all");
  cpu::CpuBackend backend(&pool, &table);
  ScratchArena scratch;
  Recorder recorder(&backend.memory());
  const OpContext context{&backend, &scratch, &recorder};
  const Checkpoint checkpoint = Must(OpenCheckpoint(argv[1]));
  LoadOptions load;
  load.kv = FindDType(kv).value_or(DType::kF16);
  const std::unique_ptr<Model> model = Must(LoadModel(checkpoint, context, load));
  const auto count = static_cast<int64_t>(tokens.size());
  LiveState state = Must(LiveState::Create(model->state_spec(), 1, count, backend.memory()));
  const size_t lists = state.memory().layout->list_count();
  const DeviceBuffer weights =
      Must(backend.memory().Allocate(lists * tokens.size() * sizeof(float)));
  const SequenceSlice slice = state.Next(0, 0, uint32_t(count));
  const WatchedRows watched{0, uint32_t(count - options.window), uint32_t(options.window),
                            weights.data().As<float>(), count};
  BatchView batch{tokens, std::span(&slice, 1), {}};
  batch.watched = std::span(&watched, 1);
  CHECK(model->Forward(context, batch, state.memory(), nullptr).ok());
  state.Advance(0, count);
  std::vector<float> sums(lists * tokens.size());
  backend.memory().DownloadArray<float>(sums, weights.data().As<float>());
  Write(*model, recorder.layers, state, options, sums, backend.memory());
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "snapkv_probe MODEL TOKENS BUDGET WINDOW f32|f16|bf16|q8_0\n");
    return 2;
  }
  reprise::Probe(argv);
  return 0;
}
