// SPDX-License-Identifier: Apache-2.0
// reprise doctor: what this machine has, what Reprise does with it, and what stands in the way.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/log.h"
#include "cli/bench/machine_peak.h"
#include "cli/bundled_model.h"
#include "cli/commands.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/fit.h"
#include "cli/doctor/machine.h"
#include "cli/loaded_model.h"
#include "cli/model_outline.h"
#include "device/scratch.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/make_backend.h"
#include "weights/checkpoint.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

struct Options {
  std::string model;
  std::string kv = "f16";
  std::string device = "auto";
  bool json = false;
};

// A model by name, with what it needs and whether that fits.
struct Patient {
  std::string name;
  ModelOutline outline;
  Fit fit;
};

struct Diagnosis {
  Machine machine;
  Program program;
  uint64_t memory_bytes = 0;  // of the device that computes: free
  std::optional<Patient> model;
  std::vector<Finding> findings;
};

// Bytes to read for the measurement: more than caches hold, and no more than a part of what is
// free.
size_t MeasuredBytes(uint64_t available) {
  return std::clamp<uint64_t>(available / 8, uint64_t{16} << 20, uint64_t{256} << 20);
}

Result<Diagnosis> Examine(const Options& options) {
  Diagnosis found;
  found.machine = ReadMachine();
  Program& program = found.program;
  const std::vector<std::string> built = BuiltBackends();
  program.cuda = std::find(built.begin(), built.end(), "cuda") != built.end();
  const char* forced = std::getenv("REPRISE_ISA");
  program.forced_isas = forced == nullptr ? "" : forced;
  static_cast<void>(cpu::ActiveTable());  // a wrong REPRISE_ISA ends the program here
  program.isas = cpu::AvailableIsas();
  SetLogLevel(LogLevel::kError);  // why the GPU is not used is told below
  REPRISE_ASSIGN(const std::unique_ptr<Backend> backend, MakeBackend({options.device, 0, 0}));
  program.device = backend->name();
  program.gpu_used = &backend->memory() != &HostMemory();
  if (program.cuda && !program.gpu_used && options.device == "auto") {
    const auto gpu = MakeBackend({"cuda", 0, 0});
    if (!gpu.ok()) program.gpu_refused = gpu.status().message();
  }
  found.memory_bytes = FindAvailableMemory(backend->memory()).bytes;
  ScratchArena scratch(backend->memory());
  program.gigabytes_per_second =
      ReadPeak({backend.get(), &scratch}, MeasuredBytes(found.memory_bytes)).giga;

  const auto path = FindModel(options.model);
  if (!path.ok() && !options.model.empty()) return path.status();
  std::optional<Fit> fit;
  if (path.ok()) {
    REPRISE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(*path));
    Patient patient;
    patient.name = std::filesystem::path(*path).filename().string();
    REPRISE_ASSIGN(patient.outline, ReadModelOutline(checkpoint, KvType(options.kv), 0));
    // What the model reads for a token may stay in caches, which are quicker than memory.
    const size_t bytes = std::min(patient.outline.step_bytes, MeasuredBytes(found.memory_bytes));
    const double gigabytes = ReadPeak({backend.get(), &scratch}, std::max<size_t>(bytes, 1)).giga;
    patient.fit = FindFit(patient.outline, found.memory_bytes, gigabytes);
    fit = patient.fit;
    found.model = std::move(patient);
  }
  found.findings = FindTrouble(found.machine, program, fit);
  return found;
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void Line(const char* what, const std::string& text) {
  std::printf("  %-9s %s\n", what, text.c_str());
}

void PrintMachine(const Diagnosis& found) {
  const Machine& machine = found.machine;
  const Program& program = found.program;
  std::printf("This machine\n");
  const int allowed = static_cast<int>(machine.processors.cpus.size());
  const int used = std::min(allowed, DefaultThreads(machine.processors));
  Line("CPU", (machine.cpu_name.empty() ? "" : machine.cpu_name + ": ") +
                  fmt::format("{} of {} CPUs are used", used, std::max(machine.cpus, allowed)));
  Line("kernels",
       Join(program.forced_isas.empty() ? program.isas : std::vector{program.forced_isas}));
  Line("memory", FormatBytes(machine.available.bytes) + " available of " +
                     FormatBytes(machine.memory_total) +
                     (machine.available.limited_by.starts_with("this machine")
                          ? ""
                          : "; the limit is " + std::string(machine.available.limited_by)));
  Line("GPU", DescribeGpu(machine, program));
  Line("computes", fmt::format("{}, which reads {:.1f} GB/s (measured)", program.device,
                               program.gigabytes_per_second));
}

void PrintModel(const Diagnosis& found) {
  const Patient& model = *found.model;
  const Fit& fit = model.fit;
  const ModelCard& card = model.outline.card;
  std::printf("\n%s (%s)\n", model.name.c_str(), card.family.c_str());
  Line("weights",
       fmt::format("{} in the memory of the {}; {} are free",
                   FormatBytes(model.outline.weight_bytes),
                   found.program.gpu_used ? "GPU" : "machine", FormatBytes(found.memory_bytes)));
  Line("state", fmt::format("{} a token, {} a conversation", FormatBytes(fit.bytes_per_token),
                            FormatBytes(fit.bytes_per_sequence)));
  if (fit.context > 0) {
    Line("context",
         fmt::format("{} of {} tokens fit; {} requests of {} tokens fit side by side", fit.context,
                     card.context_length, fit.requests, fit.request_tokens));
  }
  Line("speed", fmt::format("at most {:.0f} tokens/s for one reply: each token reads {}",
                            fit.tokens_per_second, FormatBytes(model.outline.step_bytes)));
}

void Print(const Diagnosis& found) {
  PrintMachine(found);
  if (found.model) PrintModel(found);
  std::printf("\n%s\n", found.findings.empty() ? "Nothing stands in the way." : "What to do");
  for (const Finding& finding : found.findings) {
    std::printf("  %s %s\n    %s\n", finding.serious ? "!!" : "*", finding.what.c_str(),
                finding.advice.c_str());
  }
}

void WriteMachine(const Diagnosis& found, JsonWriter* json) {
  const Machine& machine = found.machine;
  const Program& program = found.program;
  json->Key("cpu").BeginObject().Member("name", machine.cpu_name);
  json->Member("online", machine.cpus).Member("allowed", uint64_t{machine.processors.cpus.size()});
  json->Member("granted", machine.processors.at_once);
  json->Key("instruction_sets").BeginArray();
  for (const std::string& isa : program.isas) json->String(isa);
  json->EndArray().Member("forced", program.forced_isas).EndObject();
  json->Key("memory").BeginObject().Member("total_bytes", machine.memory_total);
  json->Member("available_bytes", machine.available.bytes);
  json->Member("limited_by", machine.available.limited_by);
  json->Member("swap_bytes", machine.swap_total).EndObject();
  json->Key("gpu").BeginObject().Member("count", machine.gpu.count);
  json->Member("driver", machine.gpu.driver).Member("used", program.gpu_used);
  json->Member("described", DescribeGpu(machine, program)).EndObject();
  json->Member("device", program.device).Member("device_free_bytes", found.memory_bytes);
  json->Member("gigabytes_per_second", program.gigabytes_per_second);
}

void PrintJson(const Diagnosis& found) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject();
  WriteMachine(found, &json);
  json.Key("model");
  if (found.model) {
    const Patient& model = *found.model;
    json.BeginObject().Member("name", model.name).Member("family", model.outline.card.family);
    json.Member("weight_bytes", model.outline.weight_bytes).Member("fits", model.fit.context > 0);
    json.Member("bytes_per_token", model.fit.bytes_per_token);
    json.Member("bytes_per_sequence", model.fit.bytes_per_sequence);
    json.Member("context", model.fit.context).Member("requests", model.fit.requests);
    json.Member("request_tokens", model.fit.request_tokens);
    json.Member("step_bytes", model.outline.step_bytes);
    json.Member("tokens_per_second_at_most", model.fit.tokens_per_second).EndObject();
  } else {
    json.Null();
  }
  json.Key("findings").BeginArray();
  for (const Finding& finding : found.findings) {
    json.BeginObject().Member("serious", finding.serious).Member("what", finding.what);
    json.Member("advice", finding.advice).EndObject();
  }
  json.EndArray().EndObject();
  std::printf("%s\n", text.c_str());
}

Status Run(const Options& options) {
  REPRISE_ASSIGN(const Diagnosis found, Examine(options));
  options.json ? PrintJson(found) : Print(found);
  return OkStatus();
}

}  // namespace

void DefineDoctor(Flags* flags) {
  auto options = std::make_shared<Options>();
  flags->Add("MODEL,-m,--model", &options->model,
             "GGUF file or Hugging Face folder to judge (default: the bundled model)");
  flags->Add("--kv", &options->kv, "type of K/V to reckon with: f16, bf16, f32 or q8_0",
             {.one_of = {"f16", "bf16", "f32", "q8_0"}});
  flags->Add("--device", &options->device, "what computes: auto, cpu, cuda or cuda:NUMBER");
  flags->Add("--json", &options->json, "one line of JSON");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
