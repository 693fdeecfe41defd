// SPDX-License-Identifier: Apache-2.0
// What the disk store costs: a start with many records, restoring a long conversation, and plain
// sequential reads of the same files for comparison.
//
//   tier_bench FOLDER [RECORDS] [MIB]      FOLDER is made, used and removed
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/disk_store.h"

namespace {

using namespace reprise;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(RandomAt(seed, i) % 1000));
  return tokens;
}

bool Store(DiskStore& tier, const std::vector<TokenId>& tokens, const DiskStore::Shape& shape) {
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto draft = tier.BeginStore(path, {path.size(), shape, {}});
  if (!draft) return false;
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    while (!tier.HasRoom(part.bytes)) std::this_thread::yield();
    tier.AddPart(std::vector<std::byte>(part.bytes, std::byte{1}));
  }
  while (!tier.settled()) {
    tier.Poll();
    std::this_thread::yield();
  }
  return true;
}

// Out of the page cache, as after a reboot; needs no rights.
void Forget(const std::string& folder) {
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(one.path().c_str(), O_RDONLY | O_CLOEXEC);
    (void)::fdatasync(file);
    (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

double SequentialRead(const std::string& folder) {
  std::vector<char> bytes(4 << 20);
  size_t total = 0;
  const auto begin = Clock::now();
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(one.path().c_str(), O_RDONLY | O_CLOEXEC);
    while (const ssize_t got = ::read(file, bytes.data(), bytes.size())) {
      if (got < 0) break;
      total += static_cast<size_t>(got);
    }
    ::close(file);
  }
  return static_cast<double>(total) / Seconds(begin) / 1e6;
}

double Restore(DiskStore& tier, const std::vector<TokenId>& tokens, const DiskStore::Shape& shape) {
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto begin = Clock::now();
  const auto found = tier.Find(path, 0, path.size());
  if (!found || tier.Fetch(*found, shape) == 0) return 0;
  for (;;) {
    const auto done = std::move(tier.Poll().fetched);
    if (!done.empty()) return static_cast<double>(done[0].bytes.size()) / Seconds(begin) / 1e6;
    std::this_thread::yield();
  }
}

int Run(const std::string& folder, uint64_t records, size_t mib) {
  DiskOptions options;
  options.path = folder;
  options.bytes_max = uint64_t{1} << 40;
  options.sync = false;
  constexpr DiskStore::Shape kSmall{64, 64};
  {
    auto tier = DiskStore::Open(options, StateKey());
    if (!tier.ok()) return std::fprintf(stderr, "%s\n", tier.status().message().c_str()), 1;
    for (uint64_t i = 0; i < records; ++i) (void)Store(**tier, Tokens(i, 70), kSmall);
  }
  auto begin = Clock::now();
  {
    auto tier = DiskStore::Open(options, StateKey());
    if (!tier.ok()) return 1;
    std::printf("start with %llu records: %.3f s\n",
                static_cast<unsigned long long>((*tier)->stats().records), Seconds(begin));
  }
  for (const bool secret : {false, true}) {
    std::filesystem::remove_all(folder);
    const StateKey key = secret ? StateKey::Of({1}) : StateKey();
    auto tier = DiskStore::Open(options, key);
    if (!tier.ok()) return 1;
    const DiskStore::Shape shape{size_t{1} << 20, size_t{16} << 20};
    const auto tokens = Tokens(1, mib * kBlockTokens);
    begin = Clock::now();
    (void)Store(**tier, tokens, shape);
    std::printf("%s: stored at %.0f MB/s", secret ? "encrypted" : "plain",
                static_cast<double>((*tier)->stats().bytes_written) / Seconds(begin) / 1e6);
    for (const bool cold : {true, false}) {
      if (cold) Forget(folder);
      const double plain = SequentialRead(folder);
      if (cold) Forget(folder);
      std::printf("; %s: read %.0f, restored %.0f MB/s", cold ? "from the device" : "from pages",
                  plain, Restore(**tier, tokens, shape));
    }
    std::printf("\n");
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: tier_bench FOLDER [RECORDS] [MIB]\n"), 2;
  if (std::filesystem::exists(argv[1])) return std::fprintf(stderr, "%s exists\n", argv[1]), 2;
  return Run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000,
             argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 512);
}
