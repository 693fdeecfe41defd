// SPDX-License-Identifier: Apache-2.0
// Proves what `reprise doctor` concludes: from files of the kernel as machines have them, and from
// what a model needs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cache/cache_options.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/fit.h"
#include "cli/doctor/machine.h"

namespace reprise::cli {
namespace {

namespace fs = std::filesystem;

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() : root_(fs::path(testing::TempDir()) / "doctor_test") {
    fs::remove_all(root_);
    Write("proc/cpuinfo",
          "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: other\n");
    Write("proc/meminfo",
          "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\nSwapTotal: 1024 kB\n");
    program_.isas = {"scalar", "avx2"};
    program_.gigabytes_per_second = 20;
  }
  ~DoctorTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void WriteGpu() {
    Write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n");
    Write("sys/bus/pci/devices/0000:00:00.0/class", "0x030000\n");
    Write("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n");
    Write("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n");
    Write("sys/bus/pci/devices/0000:17:00.1/vendor", "0x10de\n");
    Write("sys/bus/pci/devices/0000:17:00.1/class", "0x040300\n");  // its sound
  }
  void WriteDriver() {
    Write("proc/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\nGCC 12.2\n");
    Write("proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n");
  }

  Machine Read() {
    Machine machine = ReadMachine(root_);
    machine.cpus = static_cast<int>(machine.processors.cpus.size());  // of the real one
    return machine;
  }
  // What is found, as "what -> advice" lines.
  std::string Found(const std::optional<Fit>& fit = std::nullopt) {
    std::string text;
    for (const Finding& finding : FindTrouble(Read(), program_, fit)) {
      text += (finding.serious ? "!! " : "") + finding.what + " -> " + finding.advice + "\n";
    }
    return text;
  }
  bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  const fs::path root_;
  Program program_;
};

TEST_F(DoctorTest, ReadsWhatTheKernelTells) {
  const Machine machine = ReadMachine(root_);
  EXPECT_EQ(machine.cpu_name, "A CPU @ 2 GHz");
  EXPECT_EQ(machine.cpus, 2);
  EXPECT_EQ(machine.memory_total, uint64_t{16000000} * 1024);
  EXPECT_EQ(machine.swap_total, 1024u * 1024);
  EXPECT_EQ(machine.available.bytes, uint64_t{8000000} * 1024);
  EXPECT_EQ(machine.gpu.count, 0);
  EXPECT_EQ(Found(), "");
  EXPECT_EQ(DescribeGpu(machine, program_), "none of NVIDIA's");
}

TEST_F(DoctorTest, AMachineWithoutFilesIsNotTrusted) {
  const Machine machine = ReadMachine("/nowhere");
  EXPECT_EQ(machine.cpu_name, "");
  EXPECT_EQ(machine.cpus, 0);
  EXPECT_EQ(machine.memory_total, 0u);
  EXPECT_EQ(machine.gpu.count, 0);
}

TEST_F(DoctorTest, LimitsOfTheProcessAreNamedWithWhatRaisesThem) {
  Machine machine = Read();
  machine.processors = {{0, 1, 2, 3}, 2};
  machine.cpus = 64;
  const std::vector<Finding> found = FindTrouble(machine, program_, std::nullopt);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].what, "this process may use 4 of 64 CPUs");
  EXPECT_TRUE(Has(found[0].advice, "taskset"));
  EXPECT_EQ(found[1].what, "a control group grants the time of 2 CPUs, and 4 are there");
  EXPECT_TRUE(Has(found[1].advice, "--cpus"));
  Write("proc/self/cgroup", "0::/a\n");
  Write("sys/fs/cgroup/a/memory.max", "1000000000\n");
  Write("sys/fs/cgroup/a/memory.current", "900000000\n");
  EXPECT_TRUE(Has(Found(), "only 95.4 MiB of memory are available -> ")) << Found();
}

TEST_F(DoctorTest, SlowArithmeticAndSlowMemoryAreNamed) {
  program_.isas = {"scalar"};
  EXPECT_TRUE(Has(Found(), "no instruction set"));
  program_.forced_isas = "scalar";
  EXPECT_TRUE(Has(Found(), "REPRISE_ISA=scalar limits the instruction sets -> unset it"));
  program_.gigabytes_per_second = 1.5;
  EXPECT_TRUE(Has(Found(), "memory is read at 1.5 GB/s only"));
}

TEST_F(DoctorTest, EveryReasonWhyAGpuIsNotUsedHasItsAdvice) {
  program_.cuda = true;
  WriteGpu();
  EXPECT_EQ(Read().gpu.count, 1);
  EXPECT_TRUE(Has(Found(), "the NVIDIA driver is not loaded -> install"));
  EXPECT_EQ(DescribeGpu(Read(), program_), "NVIDIA's, no driver; not used");
  Write("sys/module/nouveau/version", "1");
  EXPECT_TRUE(Has(Found(), "nouveau"));
  WriteDriver();
  EXPECT_TRUE(Has(Found(), "its device files are not here -> in a container: docker run --gpus"));
  EXPECT_EQ(DescribeGpu(Read(), program_), "NVIDIA's, NVIDIA H200, driver 580.65.06; not used");
  Write("dev/nvidiactl", "");
  Write("dev/nvidia0", "");
  program_.gpu_refused = "GPU 0 has compute capability 7.5";
  EXPECT_TRUE(Has(Found(), "the GPU is not used: GPU 0 has compute capability 7.5 -> "));
  program_.cuda = false;
  EXPECT_TRUE(Has(Found(), "built without CUDA -> build it with: make cuda"));
  program_.gpu_used = true;
  EXPECT_EQ(Found(), "");
}

// 32 layers of 8 heads of 128, as a model of 8 billion parameters has them.
ModelOutline Dense(int64_t context) {
  ModelOutline model;
  model.card.context_length = context;
  model.weight_bytes = uint64_t{5} << 30;
  model.step_bytes = uint64_t{4} << 30;
  for (int i = 0; i < 32; ++i) {
    LayerState layer;
    layer.layer = i;
    layer.kind = StateKind::kFullKv;
    layer.tensors = {{"k", {8, 128}, DType::kF16}, {"v", {8, 128}, DType::kF16}};
    model.card.state.layers.push_back(layer);
  }
  return model;
}

TEST_F(DoctorTest, WhatFitsIsWhatTheServerWouldAccept) {
  const ModelOutline model = Dense(131072);
  const Fit fit = FindFit(model, uint64_t{9} << 30, 40);
  EXPECT_TRUE(fit.weights);
  EXPECT_EQ(fit.bytes_per_token, 131072u);
  EXPECT_EQ(fit.bytes_per_sequence, 0u);
  // 3 of the 4 GiB that are left, at 128 KiB a token: about 24,576 tokens, less bookkeeping.
  EXPECT_GT(fit.context, 24000);
  EXPECT_LE(fit.context, 24576);
  CacheOptions options;
  const size_t budget = size_t{3} << 30;
  options.context_tokens = static_cast<int32_t>(fit.context);
  EXPECT_LE(LeastBudget(model.card.state, options), budget);
  options.context_tokens += 64;
  EXPECT_GT(LeastBudget(model.card.state, options), budget);
  EXPECT_EQ(fit.request_tokens, 8192);
  EXPECT_EQ(fit.requests, 2);
  EXPECT_NEAR(fit.tokens_per_second, 40e9 / double(model.step_bytes), 0.01);
  EXPECT_EQ(Found(fit), "");
}

TEST_F(DoctorTest, WhatDoesNotFitIsSerious) {
  const ModelOutline model = Dense(131072);
  const Fit none = FindFit(model, uint64_t{4} << 30, 40);
  EXPECT_FALSE(none.weights);
  EXPECT_EQ(none.context, 0);
  EXPECT_EQ(Found(none).rfind("!! the weights of the model do not fit", 0), 0u) << Found(none);
  const Fit tight = FindFit(model, model.weight_bytes + 1000, 0);
  EXPECT_TRUE(tight.weights);
  EXPECT_EQ(tight.context, 0);
  EXPECT_EQ(tight.tokens_per_second, 0);
  EXPECT_EQ(Found(tight).rfind("!! the weights fit, but leave no memory for requests", 0), 0u);
  const Fit little = FindFit(model, model.weight_bytes + (uint64_t{200} << 20), 0);
  EXPECT_TRUE(Has(Found(little), "room for")) << Found(little);
  const Fit whole = FindFit(Dense(512), uint64_t{9} << 30, 0);
  EXPECT_EQ(whole.context, 512);
  EXPECT_EQ(whole.request_tokens, 512);
}

}  // namespace
}  // namespace reprise::cli
