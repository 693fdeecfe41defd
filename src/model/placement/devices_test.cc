// SPDX-License-Identifier: Apache-2.0
// A model on several devices is the model on one, bit for bit: of every family, on virtual devices
// whose memories are closed to the ops of the others.
#include "kernels/devices/devices.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/activation_ops.h"
#include "model/adapter/adapter.h"
#include "model/layers/step.h"
#include "model/model_fixture.h"

namespace reprise {
namespace {

// So many devices of one CPU.
class VirtualDevices {
 public:
  explicit VirtualDevices(int count, Devices::Split split = Devices::Split::kLayers)
      : pool_(split == Devices::Split::kRows ? 1 : 2), table_(*cpu::BuildTable("all")) {
    std::vector<Devices::Device> list;
    for (int i = 0; i < count; ++i) {
      Devices::Device device;
      device.name = "cpu";
      device.closed = std::make_unique<ClosedMemory>();
      device.backend = std::make_unique<cpu::CpuBackend>(&pool_, &table_, *device.closed);
      list.push_back(std::move(device));
    }
    devices_ = std::make_unique<Devices>(std::move(list), split);
  }
  const OpContext& context() const { return devices_->at(0); }
  Devices& devices() { return *devices_; }
  LoadOptions options() {
    LoadOptions options;
    options.devices = devices_.get();
    return options;
  }

 private:
  ThreadPool pool_;
  cpu::KernelTable table_;
  std::unique_ptr<Devices> devices_;
};

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests/golden")) {
    if (entry.path().filename() == "config.json") folders.push_back(entry.path().parent_path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

class DevicesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DevicesTest, ManyAreAsOne) {
  const auto checkpoint = OpenCheckpoint(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<TokenId> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 7 % 50);
  TestMachine one;
  const auto expected_model = LoadModel(*checkpoint, one.context(), {});
  ASSERT_TRUE(expected_model.ok()) << expected_model.status().message();
  const std::vector<float> expected = RunWhole(**expected_model, one.context(), tokens);

  const auto config = ReadFile(GetParam() + "/config.json", 1 << 20);
  const bool has_experts = config.ok() && config->find("expert") != std::string::npos;
  for (int count = 1; count <= 3; ++count) {
    for (const bool experts_apart : {false, true}) {
      if (experts_apart && (count == 1 || !has_experts)) continue;
      VirtualDevices machine(count);
      LoadOptions options = machine.options();
      if (experts_apart) options.placement.cpu_experts = PlacementOptions::kAll;
      const auto model = LoadModel(*checkpoint, machine.context(), options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      const std::vector<int>& layers = (*model)->placement().layers;
      if (count > 1) {
        EXPECT_NE(layers.front(), layers.back());
      }
      EXPECT_EQ((*model)->card().digest, (*expected_model)->card().digest);
      const size_t pieces[] = {3, 1, 60, 6};
      EXPECT_EQ(RunInPieces(**model, machine.context(), tokens, pieces), expected)
          << count << (experts_apart ? " devices, experts apart" : " devices");
    }
  }
}

// All of them compute every layer together.
TEST_P(DevicesTest, ManyTogetherAreAsOne) {
  const auto checkpoint = OpenCheckpoint(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<TokenId> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 7 % 50);
  TestMachine one;
  const auto expected_model = LoadModel(*checkpoint, one.context(), {});
  ASSERT_TRUE(expected_model.ok()) << expected_model.status().message();
  const std::vector<float> expected = RunWhole(**expected_model, one.context(), tokens);
  for (const int count : {1, 2, 3, 4, 8}) {
    VirtualDevices machine(count, Devices::Split::kRows);
    const auto model = LoadModel(*checkpoint, machine.context(), machine.options());
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->card().digest, (*expected_model)->card().digest);
    const size_t pieces[] = {3, 1, 60, 6};
    EXPECT_EQ(RunInPieces(**model, machine.context(), tokens, pieces), expected)
        << count << " devices";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DevicesTest, ::testing::ValuesIn(Folders()),
                         [](const auto& param) {
                           return std::filesystem::path(param.param).filename().string();
                         });

// An adapter's products lie where the weights lie that they are added to.
TEST(DevicesAdapterTest, AdaptersAreAsOnOne) {
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 7 % 50);
  for (const char* name : {"llama__vocabulary", "qwen3_5", "qwen3_moe__experts"}) {
    const std::string family = std::string(name).substr(0, std::string(name).find("__"));
    const auto checkpoint = OpenCheckpoint("tests/golden/" + family);
    const auto file = AdapterFile::Open(std::string("tests/adapters/") + name);
    ASSERT_TRUE(checkpoint.ok() && file.ok());
    const auto run = [&](const Model& model, const OpContext& context) {
      const auto adapter = Adapter::Load(*file, 1, *model.adaptable(), model.ContextsOf(context));
      CHECK(adapter.ok());
      auto live = LiveState::Create(model.state_spec(), 2, int64_t(tokens.size()),
                                    model.StateMemoryOf(context));
      CHECK(live.ok());
      // Beside a sequence without one.
      const auto count = uint32_t(tokens.size() / 2);
      SequenceSlice slices[] = {live->Next(0, 0, count), live->Next(1, count, count)};
      slices[1].adapter = adapter->get();
      const uint32_t rows[] = {count - 1, count, 2 * count - 1};
      std::vector<float> logits(std::size(rows) * size_t(model.vocab_size()));
      CHECK(model.Forward(context, {tokens, slices, rows}, live->memory(), logits.data()).ok());
      return logits;
    };
    TestMachine one;
    const auto expected_model = LoadModel(*checkpoint, one.context(), {});
    ASSERT_TRUE(expected_model.ok());
    const std::vector<float> expected = run(**expected_model, one.context());
    for (const bool experts_apart : {false, true}) {
      VirtualDevices machine(2);
      LoadOptions options = machine.options();
      if (experts_apart) options.placement.cpu_experts = PlacementOptions::kAll;
      const auto model = LoadModel(*checkpoint, machine.context(), options);
      if (experts_apart && !model.ok()) continue;  // it has none
      ASSERT_TRUE(model.ok()) << model.status().message();
      EXPECT_EQ(run(**model, machine.context()), expected) << name << experts_apart;
    }
  }
}

// What the others rest on: an op that reaches into the memory of another device is found.
TEST(DevicesDeathTest, AnOpThatReadsAnothersMemoryFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  VirtualDevices machine(2);
  const OpContext& first = machine.devices().at(0);
  const OpContext& second = machine.devices().at(1);
  const auto rows_of = [](const OpContext& context) {
    const Rows rows = {context.scratch->Floats(32), 1, 32, 32};
    Fill(context, 1, rows);
    return rows;
  };
  const Rows mine = rows_of(first), others = rows_of(second);
  Add(first, mine, mine, mine);
  EXPECT_DEATH(Add(first, mine, others, mine), "");
  EXPECT_DEATH(Add(first, mine, mine, others), "");
  Add(first, mine, Moved(second, others, first), mine);
}

// What is no finite number is found where it is stored or read, and known at home.
TEST(DevicesStateTest, WhatAnotherDeviceFindsIsKnownAtHome) {
  const auto checkpoint = OpenCheckpoint("tests/golden/qwen3_5");
  ASSERT_TRUE(checkpoint.ok());
  VirtualDevices machine(2);
  const OpContext& context = machine.context();
  const auto model = LoadModel(*checkpoint, context, machine.options());
  ASSERT_TRUE(model.ok());
  auto live = LiveState::Create((*model)->state_spec(), 2, 64, machine.devices().memory());
  ASSERT_TRUE(live.ok());
  const std::vector<TokenId> tokens = {1, 2, 3};
  const SequenceSlice slices[] = {live->Next(0, 0, 2), live->Next(1, 2, 1)};
  const BatchView batch = {tokens, slices, {}};
  const StateMemory memory = live->memory();
  const WeightIndex no_weights;
  const Step step(machine.devices().all(), batch, memory, (*model)->placement(), no_weights);
  const Step& there = step.OfLayer(int((*model)->placement().layers.size()) - 1);
  ASSERT_NE(&there, &step);
  const Rows x = step.MakeRows(4);
  Fill(context, 1, x);
  const DevicePtr<uint8_t> flags = context.scratch->Take<uint8_t>(2);
  std::vector<uint8_t> finite(2);
  const auto look = [&] {
    step.JoinSpoilt();
    FiniteRows(context, step.layout(), x, flags);
    context.backend->memory().DownloadArray<uint8_t>(finite, flags);
    return finite;
  };
  EXPECT_EQ(look(), (std::vector<uint8_t>{1, 1}));
  const int32_t spoilt[] = {0, 1};
  there.context().backend->memory().UploadArray<int32_t>(there.layout().spoilt, spoilt);
  EXPECT_EQ(look(), (std::vector<uint8_t>{1, 0}));
}

// The same where all compute together.
TEST(DevicesStateTest, WhatOneOfManyFindsIsKnownAtHome) {
  const auto checkpoint = OpenCheckpoint("tests/golden/qwen3_5");
  ASSERT_TRUE(checkpoint.ok());
  VirtualDevices machine(3, Devices::Split::kRows);
  const OpContext& context = machine.context();
  const auto model = LoadModel(*checkpoint, context, machine.options());
  ASSERT_TRUE(model.ok());
  auto live = LiveState::Create((*model)->state_spec(), 2, 64, machine.devices().memory());
  ASSERT_TRUE(live.ok());
  const std::vector<TokenId> tokens = {1, 2, 3};
  const SequenceSlice slices[] = {live->Next(0, 0, 2), live->Next(1, 2, 1)};
  // A value that is no number in the last byte of a state: of the last device's heads.
  const StateMemory memory = live->memory();
  std::vector<float> state(memory.layout->state_bytes() / sizeof(float));
  std::vector<uint8_t> finite(2);
  const auto run = [&] {
    std::vector<float> logits;
    const BatchView batch = {tokens, slices, {}, finite};
    EXPECT_TRUE((*model)->Forward(context, batch, memory, logits.data()).ok());
    return finite;
  };
  for (const bool spoilt : {false, true}) {
    if (spoilt) state.back() = std::numeric_limits<float>::quiet_NaN();
    for (const uint32_t id : {0u, 1u}) {
      const auto bytes = std::as_bytes(std::span(state));
      machine.devices().memory().Upload(memory.state(StateId{id}), bytes.data(), bytes.size());
      state.back() = 0;
    }
    EXPECT_EQ(run(), (std::vector<uint8_t>{uint8_t(!spoilt), 1}));
  }
}

// State that one number of devices has left is state of another, however they divide the model.
void MoveState(bool together) {
  for (const char* family : {"qwen3_5", "kimi_linear", "gemma3"}) {
    const auto checkpoint = OpenCheckpoint(std::string("tests/golden/") + family);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    std::vector<TokenId> tokens(70);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 11 % 50);
    TestMachine one;
    const auto whole = LoadModel(*checkpoint, one.context(), {});
    ASSERT_TRUE(whole.ok());
    const std::vector<float> expected = RunWhole(**whole, one.context(), tokens);
    const size_t vocab = size_t((*whole)->vocab_size());

    std::vector<std::byte> blocks, state;  // as they lie outside of any memory
    for (const int count : {3, 2, 1}) {
      const bool by_rows = together && count != 2;
      VirtualDevices machine(count, by_rows ? Devices::Split::kRows : Devices::Split::kLayers);
      const auto model = LoadModel(*checkpoint, machine.context(), machine.options());
      ASSERT_TRUE(model.ok());
      DeviceMemory& memory = machine.devices().memory();
      auto live = LiveState::Create((*model)->state_spec(), 1, 70, memory);
      ASSERT_TRUE(live.ok());
      const StateMemory place = live->memory();
      const size_t block_bytes = 2 * place.layout->block_bytes();
      const size_t first = count == 3 ? 0 : count == 2 ? 30 : 64;
      const size_t end = count == 3 ? 30 : count == 2 ? 64 : 70;
      live->Advance(0, int64_t(first));
      if (!blocks.empty()) memory.Upload(place.blocks, blocks.data(), blocks.size());
      if (!state.empty()) memory.Upload(place.states, state.data(), state.size());
      std::vector<uint32_t> rows(end - first);
      for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
      const SequenceSlice slice = live->Next(0, 0, uint32_t(rows.size()));
      std::vector<float> logits(rows.size() * vocab);
      ASSERT_TRUE(
          (*model)
              ->Forward(machine.context(),
                        {std::span(tokens).subspan(first, rows.size()), std::span(&slice, 1), rows},
                        place, logits.data())
              .ok());
      EXPECT_EQ(std::memcmp(logits.data(), expected.data() + first * vocab,
                            logits.size() * sizeof(float)),
                0)
          << family << " on " << count;
      blocks.resize(block_bytes);
      state.resize(place.layout->state_bytes());
      if (!blocks.empty()) memory.Download(blocks.data(), place.blocks, blocks.size());
      if (!state.empty()) memory.Download(state.data(), place.states, state.size());
    }
  }
}

TEST(DevicesStateTest, StateMovesBetweenNumbersOfDevices) { MoveState(false); }
TEST(DevicesStateTest, StateMovesBetweenNumbersOfDevicesThatAreSplitByRows) { MoveState(true); }

}  // namespace
}  // namespace reprise
