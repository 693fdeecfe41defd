// SPDX-License-Identifier: Apache-2.0
// Proves that models touch activations, vectors of weights and state through ops and copies alone:
// they run, bit for bit, in memory that cannot be read or written in between.
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "device/raw.h"
#include "model/model_fixture.h"

namespace reprise {
namespace {

// Memory that is closed but for the time of an op or a copy.
class GuardedMemory final : public DeviceMemory, public OpObserver {
 public:
  Result<DeviceBuffer> Allocate(size_t bytes) override {
    auto owner = std::make_unique<Mapping>(this, bytes);
    const DevicePtr<std::byte> data = PlaceAt(owner->data);
    return DeviceBuffer(std::move(owner), data, bytes);
  }
  Result<DeviceBuffer> Reserve(size_t bytes) override { return Allocate(bytes); }
  Status Commit(DevicePtr<std::byte>, size_t) override { return OkStatus(); }
  void Discard(DevicePtr<std::byte>, size_t) override {}
  size_t page_bytes() const override { return 4096; }

  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    Begin("upload");
    if (bytes != 0) std::memcpy(Raw(to), from, bytes);
    End();
  }
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override {
    Begin("download");
    if (bytes != 0) std::memcpy(to, Raw(from), bytes);
    End();
  }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    Begin("copy");
    if (bytes != 0) std::memcpy(Raw(to), Raw(from), bytes);
    End();
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override {
    Begin("zero");
    if (bytes != 0) std::memset(Raw(to), 0, bytes);
    End();
  }
  void Synchronize() override {}
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Capacity capacity() const override { return {size_t{1} << 40, size_t{1} << 40}; }

  void Begin(std::string_view) override { Protect(PROT_READ | PROT_WRITE); }
  void End() override {
    ++ops_;
    Protect(PROT_NONE);
  }
  size_t ops() const { return ops_; }

 private:
  struct Mapping final : DeviceBuffer::Owner {
    Mapping(GuardedMemory* memory, size_t size) : owner(memory), bytes(std::max<size_t>(size, 1)) {
      void* mapped =
          ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(mapped != MAP_FAILED);
      data = static_cast<std::byte*>(mapped);
      owner->mappings_[data] = bytes;
    }
    ~Mapping() override {
      owner->mappings_.erase(data);
      ::munmap(data, bytes);
    }
    GuardedMemory* owner;
    size_t bytes;
    std::byte* data = nullptr;
  };
  void Protect(int protection) {
    for (const auto& [data, bytes] : mappings_) CHECK(::mprotect(data, bytes, protection) == 0);
  }

  std::map<std::byte*, size_t> mappings_;
  size_t ops_ = 0;
};

class SeamTest : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests/golden")) {
    if (entry.path().filename() == "config.json") folders.push_back(entry.path().parent_path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

TEST_P(SeamTest, NothingIsTouchedBetweenOps) {
  const auto checkpoint = OpenCheckpoint(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<TokenId> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenId(i * 7 % 50);
  TestMachine plain;
  const auto expected_model = LoadModel(*checkpoint, plain.context(), {});
  ASSERT_TRUE(expected_model.ok()) << expected_model.status().message();
  const std::vector<float> expected = RunWhole(**expected_model, plain.context(), tokens);

  GuardedMemory memory;
  {
    ThreadPool pool(2);
    const auto table = cpu::BuildTable("all");
    ASSERT_TRUE(table.ok());
    cpu::CpuBackend backend(&pool, &*table, memory);
    ScratchArena scratch(memory);
    const OpContext context = {&backend, &scratch, &memory};
    const auto model = LoadModel(*checkpoint, context, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ((*model)->card().digest, (*expected_model)->card().digest);
    const size_t pieces[] = {3, 1, 60, 6};
    EXPECT_EQ(RunInPieces(**model, context, tokens, pieces), expected);
  }
  EXPECT_GT(memory.ops(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Families, SeamTest, ::testing::ValuesIn(Folders()), [](const auto& param) {
  return std::filesystem::path(param.param).filename().string();
});

}  // namespace
}  // namespace reprise
