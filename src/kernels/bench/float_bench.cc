// SPDX-License-Identifier: Apache-2.0
// kernels_float_bench [isas] [threads]: speed of the float ops in the shapes of real models, beside
// what the machine can do (multiply-adds on registers, a plain copy) and beside the reference. A
// laboratory, not a test: numbers depend on the neighbours.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/front/ops_fixture.h"
#include "kernels/scan_ops.h"

namespace reprise {
namespace {

// Seconds of the quickest of several runs.
template <typename Function>
double Quickest(const Function& function) {
  double best = 1e9;
  const double begin = ThreadSeconds();
  do {
    const double start = ThreadSeconds();
    function();
    best = std::min(best, ThreadSeconds() - start);
  } while (ThreadSeconds() - begin < 0.15);
  return best;
}

Floats Random(int64_t n) {
  Rng rng(uint64_t(n) + 1);
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = rng.Uniform() * 2 - 1;
  return x;
}

class Bench {
 public:
  Bench(const std::string& isas, int threads) : pool_(threads) {
    auto table = cpu::BuildTable(isas);
    if (!table.ok()) {
      std::fprintf(stderr, "%s\n", table.status().message().c_str());
      std::exit(1);
    }
    table_ = *table;
    constexpr int64_t kLoops = 20000;
    const double seconds = Quickest([&] { sink_ += table_.multiply_adds(kLoops); });
    gflops_ = 2.0 * 256 * kLoops / seconds / 1e9 * pool_.size();
    Floats from = Random(1 << 24);
    Floats to(from.size());
    const double copy = Quickest([&] {
      pool_.ParallelFor(int64_t(from.size()), 1 << 12, [&](int64_t begin, int64_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, size_t(end - begin) * 4);
      });
    });
    gbytes_ = 8.0 * double(from.size()) / copy / 1e9;
    std::printf("%s, %d threads: %.0f GFLOP/s on registers, %.1f GB/s copying\n", isas.c_str(),
                threads, gflops_, gbytes_);
  }

  OpContext context() { return {&backend_, &scratch_}; }

  void Attention(int64_t tokens, int kv_heads, int q_heads, int head_dim) {
    const KvShape shape = {kv_heads, head_dim, head_dim, DType::kF16};
    const AttentionParams params = {q_heads, 0.1f, 0, 0};
    Floats q = Random(tokens * q_heads * head_dim);
    Floats kv = Random(tokens * kv_heads * head_dim);
    Floats out(q.size());
    const int64_t block_bytes = 2LL * 64 * head_dim * kv_heads;
    std::vector<std::byte> memory(size_t(2 * block_bytes * (tokens / 64 + 1)));
    std::vector<uint32_t> ids;
    for (int64_t b = 0; b <= tokens / 64; ++b) ids.push_back(uint32_t(b));
    const KvPlace place = {0, size_t(block_bytes)};
    TestStep all(tokens);
    all.Add(0, tokens, 0);
    all.AddBlocks(ids);
    all.SetBlockMemory(memory, size_t(2 * block_bytes));
    const StepLayout& step = all.Begin(context());
    const Rows q_rows = View(q, q_heads * head_dim);
    const Rows kv_rows = View(kv, kv_heads * head_dim);
    const Rows out_rows = View(out, q_heads * head_dim);
    const double store =
        Quickest([&] { StoreKv(context(), step, place, shape, kv_rows, kv_rows); });
    const double prefill =
        Quickest([&] { Attend(context(), step, place, shape, params, q_rows, out_rows); });
    const std::string what = std::to_string(tokens) + " tokens, " + std::to_string(q_heads) + "/" +
                             std::to_string(kv_heads) + " heads of " + std::to_string(head_dim);
    const double pairs = double(tokens) * double(tokens + 1) / 2;
    PrintFlops("attention prefill, " + what, prefill, 4.0 * head_dim * q_heads * pairs);
    PrintBytes("store K/V, " + what, store, double(tokens) * kv_heads * head_dim * 12);
    TestStep last(tokens);
    last.Add(0, 1, tokens - 1);
    last.AddBlocks(ids);
    last.SetBlockMemory(memory, size_t(2 * block_bytes));
    const StepLayout& one = last.Begin(context());
    const double decode =
        Quickest([&] { Attend(context(), one, place, shape, params, q_rows, out_rows); });
    PrintBytes("attention decode, " + what, decode, double(tokens) * kv_heads * head_dim * 4);
  }

  void Delta(int heads, int dim) {
    const GatedDeltaShape shape = {heads, heads, dim, dim, false};
    constexpr int64_t kTokens = 64;
    Floats x = Random(kTokens * heads * dim);
    for (float& v : x) v *= 0.05f;
    Floats gate(size_t(kTokens * heads), 0.9f);
    Floats y(x.size());
    Floats state(size_t(heads * dim * dim));
    const double elements = double(heads) * dim * dim;
    for (const int64_t rows : {kTokens, int64_t{1}}) {
      TestStep made(kTokens);
      made.Add(0, rows, 0);
      made.SetStates(state, int64_t(state.size()));
      const StepLayout& step = made.Begin(context());
      const Rows in = View(x, heads * dim);
      const Rows gates = View(gate, heads);
      const double seconds = Quickest([&] {
        GatedDelta(context(), step, 0, shape, in, in, in, gates, gates, View(y, heads * dim));
      });
      if (rows > 1) {
        PrintFlops("gated delta prefill, per token", seconds / double(rows), 7 * elements);
      } else {
        PrintBytes("gated delta decode", seconds, 8 * elements);
      }
    }
  }

  void StateSpaceDual(int heads, int groups, int keys, int dim) {
    const SsdShape shape = {heads, groups, keys, dim};
    constexpr int64_t kTokens = 64;
    Floats x = Random(kTokens * heads * dim);
    Floats b = Random(kTokens * groups * keys);
    Floats gate(size_t(kTokens * heads), 0.9f);
    Floats skip(size_t(heads), 1.0f);
    Floats y(x.size());
    Floats state(size_t(heads * keys * dim));
    const double elements = double(heads) * keys * dim;
    for (const int64_t rows : {kTokens, int64_t{1}}) {
      TestStep made(kTokens);
      made.Add(0, rows, 0);
      made.SetStates(state, int64_t(state.size()));
      const StepLayout& step = made.Begin(context());
      const Rows in = View(b, groups * keys);
      const Rows gates = View(gate, heads);
      const double seconds = Quickest([&] {
        Ssd(context(), step, 0, shape, View(x, heads * dim), in, in, gates, gates, View(skip),
            View(y, heads * dim));
      });
      if (rows > 1) {
        PrintFlops("ssd prefill, per token", seconds / double(rows), 5 * elements);
      } else {
        PrintBytes("ssd decode", seconds, 8 * elements);
      }
    }
  }

  void Selective(int64_t channels, int keys) {
    constexpr int64_t kTokens = 64;
    Floats x = Random(kTokens * channels);
    Floats dt(x.size(), 0.1f);
    Floats b = Random(kTokens * keys);
    Floats a(size_t(keys * channels), -1.0f);
    Floats y(x.size());
    Floats state(a.size());
    const double elements = double(channels) * keys;
    for (const int64_t rows : {kTokens, int64_t{1}}) {
      TestStep made(kTokens);
      made.Add(0, rows, 0);
      made.SetStates(state, int64_t(state.size()));
      const StepLayout& step = made.Begin(context());
      const double seconds = Quickest([&] {
        SelectiveScan(context(), step, 0, View(a), View(x), View(x, channels), View(dt, channels),
                      View(b, keys), View(b, keys), View(y, channels));
      });
      if (rows > 1) {
        PrintFlops("selective scan prefill, per token", seconds / double(rows), 27 * elements);
      } else {
        PrintBytes("selective scan decode", seconds, 12 * elements);
      }
    }
  }

  void RowOps(int64_t rows) {
    constexpr int64_t kCols = 3072;
    Floats a = Random(rows * kCols);
    Floats b = Random(rows * kCols);
    Floats y(a.size());
    Floats weight = Random(4 * kCols);
    Floats window(size_t(3 * kCols));
    const double bytes = double(rows) * kCols * 4;
    const std::string what = std::to_string(rows) + " rows of " + std::to_string(kCols);
    const Rows x = View(a, kCols);
    const Rows u = View(b, kCols);
    const Rows out = View(y, kCols);
    PrintBytes("rms norm, " + what,
               Quickest([&] { RmsNorm(context(), x, View(weight), 1, 1e-6f, out); }), 2 * bytes);
    PrintBytes("swiglu, " + what, Quickest([&] { SwiGlu(context(), x, u, out); }), 3 * bytes);
    PrintBytes("add, " + what, Quickest([&] { Add(context(), x, u, out); }), 3 * bytes);
    TestStep made(rows);
    made.Add(0, rows, 0);
    made.SetStates(window, int64_t(window.size()));
    const StepLayout& step = made.Begin(context());
    PrintBytes("short conv + silu, " + what, Quickest([&] {
                 ShortConv(context(), step, 0, View(weight), nullptr, 4, true, x, out);
               }),
               2 * bytes);
  }

 private:
  void PrintFlops(const std::string& what, double seconds, double flops) {
    std::printf("  %-56s %9.1f us %7.1f GFLOP/s %4.0f %% of peak\n", what.c_str(), seconds * 1e6,
                flops / seconds / 1e9, flops / seconds / 1e7 / gflops_);
  }
  void PrintBytes(const std::string& what, double seconds, double bytes) {
    std::printf("  %-56s %9.1f us %7.1f GB/s    %4.0f %% of a copy\n", what.c_str(), seconds * 1e6,
                bytes / seconds / 1e9, bytes / seconds / 1e7 / gbytes_);
  }

  ThreadPool pool_;
  cpu::KernelTable table_ = {};
  cpu::CpuBackend backend_{&pool_, &table_};
  ScratchArena scratch_;
  float sink_ = 0;
  double gflops_ = 0;
  double gbytes_ = 0;
};

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  reprise::Bench bench(argc > 1 ? argv[1] : "all", threads);
  bench.Attention(512, 2, 4, 128);  // qwen3 0.6B, a quarter of its heads
  bench.Attention(2048, 2, 4, 128);
  bench.Attention(2048, 2, 8, 256);      // qwen3.5 0.8B
  bench.Attention(2048, 2, 8, 64);       // llama 3.2 1B, a quarter of its heads
  bench.Delta(16, 128);                  // qwen3.5 0.8B
  bench.StateSpaceDual(24, 1, 128, 64);  // mamba2 130m
  bench.StateSpaceDual(96, 8, 128, 80);  // nemotron 3 nano 4B
  bench.Selective(5120, 16);             // jamba reasoning 3B
  bench.RowOps(1);
  bench.RowOps(512);
}
