// SPDX-License-Identifier: Apache-2.0
// State that is no finite number is said by every op on the device; every thread that uses a GPU
// has said which.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda/must.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/front/spoilt_cases.h"

namespace reprise::cuda {
namespace {

std::unique_ptr<Backend> MakeGpu() {
  auto made = CudaBackend::Make(0, 1);
  CHECK(made.ok());
  return std::move(*made);
}

TEST(CudaState, SpoiltIsSaidByEveryOp) {
  const std::unique_ptr<Backend> backend = MakeGpu();
  SpoiltCases(backend.get()).RunAll();
}

// A second GPU cannot be had here; that every way to one says which can.
TEST(CudaDevice, EveryThreadSaysWhichItUses) {
  const std::unique_ptr<Backend> backend = MakeGpu();
  auto buffer = backend->memory().Allocate(4096);
  ASSERT_TRUE(buffer.ok());
  const DevicePtr<std::byte> place = buffer->data();
  const Rows rows = {place.As<float>(), 1, 16, 16};
  auto& lanes = dynamic_cast<LaneSource&>(backend->memory());
  auto lane = lanes.OpenLane(4096);
  ASSERT_TRUE(lane.ok());
  DeviceMemory& memory = backend->memory();
  std::byte host[64];
  const std::vector<std::function<void()>> ways = {
      [&] { (void)memory.Allocate(64); },
      [&] { (void)memory.Reserve(64); },
      [&] { memory.Upload(place, host, 64); },
      [&] { memory.Download(host, place, 64); },
      [&] { memory.Copy(place, place + 64, 64); },
      [&] { memory.Zero(place, 64); },
      [&] { memory.Synchronize(); },
      [&] { (void)memory.capacity(); },
      [&] { backend->Fill(1, rows); },
      [&] { (void)backend->sizes_max(); },
      [&] {
        ScratchArena scratch(memory);
        StepLayout step;
        backend->BeginStep(scratch, &step);
      },
      [&] { (*lane)->Follow(); },
      [&] { (*lane)->Out((*lane)->data(), place, 64); },
      [&] { (*lane)->In(place, (*lane)->data(), 64); },
      [&] { (*lane)->Join(); },
      [&] { (void)(*lane)->Reached((*lane)->Mark()); },
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    int used = -2;
    std::thread([&] {
      ways[i]();
      used = UsedGpu();
    }).join();
    EXPECT_EQ(used, 0) << "way " << i;
  }
  memory.Synchronize();
}

}  // namespace
}  // namespace reprise::cuda
