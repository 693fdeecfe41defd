// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/device_budgets.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"

namespace reprise::cli {
namespace {

ServeOptions On(const std::string& device, const std::string& devices = "") {
  ServeOptions options;
  options.model.device = device;
  options.model.devices = devices;
  return options;
}

std::string NameOf(const DeviceBudgets& budgets, const ServeOptions& options) {
  const auto name = budgets.DeviceOf(options.model);
  return name.ok() ? *name : name.status().message();
}

TEST(DeviceBudgets, OneForEachDevice) {
  const DeviceBudgets budgets({{"cpu", {1000, 1}}, {"cuda:0", {2000, 2}}, {"cuda:1", {3000, 3}}});
  EXPECT_TRUE(budgets.shared());
  EXPECT_EQ(NameOf(budgets, On("cpu")), "cpu");
  EXPECT_EQ(NameOf(budgets, On("cuda")), "cuda:0");
  EXPECT_EQ(NameOf(budgets, On("cuda:1")), "cuda:1");
  EXPECT_EQ(budgets.Of("cuda:1").bytes, 3000u);
  EXPECT_NE(NameOf(budgets, On("cuda:2")).find("none of the server's models"), std::string::npos);
}

// Devices of one name are parts of one memory; a model on two memories would have two budgets.
TEST(DeviceBudgets, AModelLiesOnOneDevice) {
  const DeviceBudgets budgets({{"cpu", {1000, 1}}, {"cuda:0", {2000, 2}}});
  EXPECT_EQ(NameOf(budgets, On("auto", "cpu,cpu,cpu")), "cpu");
  EXPECT_EQ(NameOf(budgets, On("auto", "cuda,cuda")), "cuda:0");
  for (const char* list : {"cuda:0,cpu", "cpu,cuda", "auto", "cpu,"}) {
    EXPECT_NE(NameOf(budgets, On("auto", list)).find("each lies on one device"), std::string::npos)
        << list;
  }
}

TEST(DeviceBudgets, OfTheCpuAsTheOptionsSay) {
  ServeOptions server = On("cpu");
  server.memory_mib = 300;
  const std::vector<ServeOptions> models = {On("cpu"), On("auto", "cpu,cpu")};
  const auto budgets = DeviceBudgets::Open(server, models);
  ASSERT_TRUE(budgets.ok()) << budgets.status().message();
  ASSERT_EQ(budgets->all().size(), 1u);
  EXPECT_EQ(budgets->Of("cpu").bytes, size_t{300} << 20);
  EXPECT_GT(budgets->Of("cpu").working, 0u);
  server.memory_mib = 0;
  const auto from_machine = DeviceBudgets::Open(server, models);
  ASSERT_TRUE(from_machine.ok());
  EXPECT_GT(from_machine->Of("cpu").bytes, size_t{1} << 20);
}

// What "auto" takes here is known before a model is read.
TEST(DeviceBudgets, AutoIsADevice) {
  SetLogLevel(LogLevel::kError);
  const std::vector<ServeOptions> models = {On("auto")};
  const auto budgets = DeviceBudgets::Open(models[0], models);
  SetLogLevel(LogLevel::kInfo);
  ASSERT_TRUE(budgets.ok()) << budgets.status().message();
  ASSERT_EQ(budgets->all().size(), 1u);
  EXPECT_EQ(NameOf(*budgets, On("auto")), budgets->all().begin()->first);
}

TEST(DeviceBudgets, AServerOfOneModelHasNone) { EXPECT_FALSE(DeviceBudgets().shared()); }

}  // namespace
}  // namespace reprise::cli
