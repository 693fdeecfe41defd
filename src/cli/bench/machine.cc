// SPDX-License-Identifier: Apache-2.0
// `reprise bench machine`: the ceilings that other benchmarks are held against, of one core and of
// all, and how they were measured.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "cli/bench/machine_peak.h"
#include "cli/commands.h"
#include "device/processors.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/make_backend.h"
#include "kernels/op_context.h"

namespace reprise::cli {
namespace {

struct Options {
  int threads = 0;
  int64_t mib = 512;
  bool json = false;
};

// What is measured, in the order of the table.
struct Ceiling {
  const char* name;
  const char* json_name;
  const char* unit;
};
constexpr Ceiling kCeilings[] = {
    {"reading memory", "read_gigabytes_per_second", "GB/s"},
    {"int8 products", "int8_giga_operations_per_second", "GOP/s"},
    {"f32 products", "f32_gigaflops", "GFLOP/s"},
};
constexpr size_t kCeilingCount = sizeof(kCeilings) / sizeof(kCeilings[0]);

struct Row {
  int threads = 0;
  Peak peaks[kCeilingCount];
};

Result<Row> Measure(int threads, size_t bytes) {
  REPRISE_ASSIGN(const std::unique_ptr<Backend> backend, MakeBackend({"cpu", threads, 0}));
  ScratchArena scratch;
  const OpContext context = {backend.get(), &scratch};
  return Row{threads,
             {ReadPeak(context, bytes), ProductPeak(context, DType::kQ8_0),
              ProductPeak(context, DType::kF32)}};
}

void Print(const Processors& processors, const std::vector<Row>& rows) {
  std::printf("%d cores with %zu CPUs, of which %d may be used at once; kernels: %s\n\n",
              processors.core_count(), processors.cpus.size(), processors.at_once,
              cpu::ActiveTable().matrix[int(DType::kQ8_0)].isa);
  std::printf("%-16s", "");
  for (const Row& row : rows) {
    const std::string threads =
        std::to_string(row.threads) + (row.threads == 1 ? " thread" : " threads");
    std::printf("%18s", threads.c_str());
  }
  std::printf("\n");
  for (size_t i = 0; i < kCeilingCount; ++i) {
    std::printf("%-16s", kCeilings[i].name);
    for (const Row& row : rows) {
      std::printf("%10.1f %-7s", row.peaks[i].giga, kCeilings[i].unit);
    }
    std::printf("  %s\n", rows.back().peaks[i].what);
  }
  std::printf(
      "\nThe best of five runs each; a product counts as two, a multiplication and a sum.\n");
}

void PrintJson(const Processors& processors, const std::vector<Row>& rows) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject();
  json.Member("cores", processors.core_count()).Member("cpus", uint64_t{processors.cpus.size()});
  json.Member("at_once", processors.at_once);
  json.Member("kernels", cpu::ActiveTable().matrix[int(DType::kQ8_0)].isa);
  json.Key("ceilings").BeginArray();
  for (const Row& row : rows) {
    json.BeginObject().Member("threads", row.threads);
    for (size_t i = 0; i < kCeilingCount; ++i) {
      json.Member(kCeilings[i].json_name, row.peaks[i].giga);
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  std::printf("%s\n", text.c_str());
}

}  // namespace

void DefineMachineBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("--threads", &options->threads, "besides one (default: one per core)",
             {.min = 1, .max = 1024});
  flags->Add("--mib", &options->mib, "memory that is read", {.min = 1, .max = 1 << 20});
  flags->Add("--json", &options->json, "one line of JSON");
  flags->SetAction([=]() -> Status {
    const Processors processors = FindProcessors();
    const int all = options->threads > 0 ? options->threads : DefaultThreads(processors);
    std::vector<Row> rows;
    for (const int threads : all == 1 ? std::vector<int>{1} : std::vector<int>{1, all}) {
      REPRISE_ASSIGN(const Row row, Measure(threads, size_t(options->mib) << 20));
      rows.push_back(row);
    }
    options->json ? PrintJson(processors, rows) : Print(processors, rows);
    return OkStatus();
  });
}

}  // namespace reprise::cli
