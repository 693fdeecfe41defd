// SPDX-License-Identifier: Apache-2.0
#include "model/placement/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace reprise {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Experts are most of a layer, as in large mixtures.
std::vector<LayerBytes> Layers(size_t count) {
  return std::vector<LayerBytes>(count, {kGiB / 8, kGiB / 2, kGiB / 16});
}

DeviceRoom Gpu(int index, uint64_t gib) {
  return {"cuda:" + std::to_string(index), true, index, gib * kGiB, "", kGiB / 4};
}
DeviceRoom Cpu(int index) { return {"cpu", false, index, 256 * kGiB, "", kGiB / 4}; }

std::vector<int> Counts(const Placement& placement, size_t devices) {
  std::vector<int> counts(devices);
  for (const int device : placement.layers) ++counts[size_t(device)];
  EXPECT_TRUE(std::is_sorted(placement.layers.begin(), placement.layers.end()));
  return counts;
}

TEST(Placement, DevicesThatAreAlikeGetEqualParts) {
  std::vector<DeviceRoom> cpus(3, Cpu(0));
  EXPECT_EQ(Counts(*Place(Layers(12), 0, cpus, {}), 3), (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(Counts(*Place(Layers(2), 0, cpus, {}), 3).front(), 1);
}

TEST(Placement, GpusShareByWhatTheyHaveFree) {
  const std::vector<DeviceRoom> gpus = {Gpu(0, 24), Gpu(1, 12)};
  const std::vector<int> counts = Counts(*Place(Layers(30), 0, gpus, {}), 2);
  EXPECT_EQ(counts[0], 20);
  EXPECT_EQ(counts[1], 10);
}

TEST(Placement, WhatDoesNotFitGoesToTheCpu) {
  const std::vector<DeviceRoom> devices = {Gpu(0, 12), Cpu(1)};
  const Placement placement = *Place(Layers(40), kGiB, devices, {});
  // (12 - 1 - 1/4) GiB hold 15 layers of 11/16 GiB.
  EXPECT_EQ(Counts(placement, 2), (std::vector<int>{15, 25}));
  const std::vector<uint64_t> bytes = BytesByDevice(Layers(40), kGiB, devices, placement);
  EXPECT_LE(bytes[0], 12 * kGiB);
  EXPECT_EQ(bytes[0] + bytes[1], kGiB + 40 * (kGiB / 16 * 11) + kGiB / 2);
}

TEST(Placement, ExpertsMakeRoomForEverythingElse) {
  const std::vector<DeviceRoom> devices = {Gpu(0, 12), Cpu(1)};
  PlacementOptions options;
  options.cpu_experts = PlacementOptions::kAllThatMustBe;
  const Placement placement = *Place(Layers(40), kGiB, devices, options);
  EXPECT_EQ(Counts(placement, 2), (std::vector<int>{40, 0}));
  int apart = 0;
  for (int layer = 0; layer < 40; ++layer) apart += placement.OfExperts(layer) == 1;
  // All of 40 layers without experts take 7.5 GiB; what is left holds experts of 6.
  EXPECT_EQ(apart, 34);
  EXPECT_LE(BytesByDevice(Layers(40), kGiB, devices, placement)[0], 12 * kGiB);
}

// Else the digest of a model without experts would name where they are not.
TEST(Placement, LayersWithoutExpertsHaveNoneElsewhere) {
  std::vector<LayerBytes> layers = Layers(4);
  layers[1].experts = 0;
  PlacementOptions options;
  options.cpu_experts = PlacementOptions::kAll;
  const Placement placement = *Place(layers, 0, {Gpu(0, 80), Cpu(1)}, options);
  EXPECT_EQ(placement.experts, (std::vector<int>{1, 0, 1, 1}));
}

TEST(Placement, NumbersThatWereAskedForHold) {
  const std::vector<DeviceRoom> devices = {Gpu(0, 80), Gpu(1, 80), Cpu(2)};
  PlacementOptions options;
  options.gpu_layers = 10;
  options.cpu_experts = 3;
  const Placement placement = *Place(Layers(16), 0, devices, options);
  const std::vector<int> counts = Counts(placement, 3);
  EXPECT_EQ(counts[0] + counts[1], 10);
  EXPECT_EQ(counts[2], 6);
  for (int layer = 0; layer < 16; ++layer) {
    EXPECT_EQ(placement.OfExperts(layer), layer < 3 ? 2 : placement.OfLayer(layer));
  }
  options = {};
  options.layers = {1, 5, 10};
  EXPECT_EQ(Counts(*Place(Layers(16), 0, devices, options), 3), (std::vector<int>{1, 5, 10}));
}

TEST(Placement, WhatCannotBeIsRefused) {
  PlacementOptions options;
  options.layers = {3, 3};
  EXPECT_FALSE(Place(Layers(7), 0, {Gpu(0, 8), Gpu(1, 8)}, options).ok());
  options = {};
  options.gpu_layers = 2;
  EXPECT_FALSE(Place(Layers(7), 0, {Gpu(0, 8), Gpu(1, 8)}, options).ok());
  EXPECT_FALSE(Place(Layers(7), 0, {Cpu(0), Cpu(0)}, options).ok());
  EXPECT_FALSE(Place(Layers(7), 0, {Cpu(0), Gpu(1, 8)}, {}).ok());
}

}  // namespace
}  // namespace reprise
