// SPDX-License-Identifier: Apache-2.0
// What the disk store costs: a start with many records, restoring a long conversation, and plain
// sequential reads of the same files for comparison.
//
//   tier_bench FOLDER [RECORDS] [MIB]      FOLDER is made, used and removed
//   tier_bench redis://HOST[:PORT] [MIB]   through a Redis
//   tier_bench pack FOLDER                 how much shorter packing makes the records that a server
//                                          has left there (without a key), and how fast
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/folder/folder_home.h"
#include "tier/folder/record_file.h"
#include "tier/pack/pack.h"
#include "tier/plan.h"
#include "tier/record_store.h"
#include "tier/redis/redis_home.h"

namespace {

using namespace reprise;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Of all threads of this process: what others on the machine do changes it less.
double CpuSeconds() {
  rusage used = {};
  (void)::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// As an engine does that has nothing else to do: whoever spins takes a core from those who work.
void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(RandomAt(seed, i) % 1000));
  return tokens;
}

// Like K/V: nothing in it that a device could leave out. Made once, told apart by where it begins.
std::vector<std::byte> Part(size_t bytes, size_t number) {
  constexpr size_t kWords = size_t{4} << 20;
  static const std::vector<uint64_t> words = [] {
    std::vector<uint64_t> made(kWords);
    for (size_t i = 0; i < kWords; ++i) made[i] = RandomAt(7, i);
    return made;
  }();
  std::vector<std::byte> part(bytes);
  for (size_t done = 0; done < bytes;) {
    const size_t from = (number * 4099 + done / sizeof(uint64_t)) % kWords;
    const size_t now = std::min(bytes - done, (kWords - from) * sizeof(uint64_t));
    std::memcpy(part.data() + done, &words[from], now);
    done += now;
  }
  return part;
}

bool Store(RecordStore& tier, const std::vector<TokenId>& tokens, const StateShape& shape) {
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto draft = tier.BeginStore(path, {path.size(), shape, {}});
  if (!draft) return false;
  size_t number = 0;
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    while (!tier.HasRoom(part.bytes)) Pause();
    tier.AddPart(Part(part.bytes, number++));
  }
  while (!tier.settled()) {
    tier.Poll();
    if (!tier.settled()) Pause();
  }
  return true;
}

// Many small records, each of a conversation of its own.
bool Fill(const std::string& folder, uint64_t records) {
  const StateKey key;
  auto home = FolderHome::Open({.path = folder, .sync = false, .fault = nullptr}, key);
  if (!home.ok()) return false;
  std::atomic<bool> well = true;
  const auto write = [&](uint64_t first, uint64_t step) {
    for (uint64_t i = first; i < records; i += step) {
      const std::vector<TokenId> tokens = Tokens(i, 70);
      const PromptPath path(key.NamespaceOf("model", ""), tokens);
      const auto plan = PlanRecord(Catalog(), path, {70, {64, 64}, {}});
      const RecordLayout layout(plan->facts);
      auto sink = (*home)->Create((*home)->NameFor(plan->facts), plan->facts);
      for (const RecordLayout::Part& part : layout.parts()) {
        std::vector<std::byte> bytes(part.bytes, std::byte{1});
        well = well && sink.ok() && (*sink)->Append(bytes).ok();
      }
      well = well && (*sink)->Commit().ok();
    }
  };
  constexpr uint64_t kThreads = 8;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(write, i, kThreads);
  for (std::thread& thread : threads) thread.join();
  return well;
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

struct Restored {
  double mb_s = 0;
  double cpu_s_gb = 0;  // of this process
};

Restored Restore(RecordStore& tier, const std::vector<TokenId>& tokens, const StateShape& shape) {
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto begin = Clock::now();
  const double cpu = CpuSeconds();
  const auto found = tier.Find(path, 0, path.size());
  if (!found || tier.Fetch(*found, shape) == 0) return {};
  for (;;) {
    const auto done = std::move(tier.Poll().fetched);
    if (!done.empty()) {
      const auto bytes = static_cast<double>(done[0].bytes.size());
      return {bytes / Seconds(begin) / 1e6, (CpuSeconds() - cpu) / bytes * 1e9};
    }
    Pause();
  }
}

int Run(const std::string& folder, uint64_t records, size_t mib) {
  DiskOptions options;
  options.path = folder;
  options.bytes_max = uint64_t{1} << 40;
  options.sync = false;
  if (!Fill(folder, records)) return std::fprintf(stderr, "%s cannot be used\n", folder.c_str()), 1;
  auto begin = Clock::now();
  for (int i = 0; i < 5; ++i) {
    begin = Clock::now();
    const double cpu = CpuSeconds();
    auto tier = RecordStore::Open(options, StateKey());
    if (!tier.ok()) return 1;
    std::printf("start with %llu records: %.3f s, %.3f s of all threads\n",
                static_cast<unsigned long long>((*tier)->stats().records), Seconds(begin),
                CpuSeconds() - cpu);
  }
  for (const bool secret : {false, true}) {
    std::filesystem::remove_all(folder);
    const StateKey key = secret ? StateKey::Of({1}) : StateKey();
    auto tier = RecordStore::Open(options, key);
    if (!tier.ok()) return 1;
    const StateShape shape{size_t{1} << 20, size_t{16} << 20};
    const auto tokens = Tokens(1, mib * kBlockTokens);
    begin = Clock::now();
    (void)Store(**tier, tokens, shape);
    std::printf("%s: stored at %.0f MB/s", secret ? "encrypted" : "plain",
                static_cast<double>((*tier)->stats().bytes_written) / Seconds(begin) / 1e6);
    for (const bool cold : {true, false}) {
      if (cold) Forget(folder);
      const double plain = SequentialRead(folder);
      if (cold) Forget(folder);
      const Restored restored = Restore(**tier, tokens, shape);
      std::printf("; %s: read %.0f, restored %.0f MB/s (%.2f s of threads a GB)",
                  cold ? "from the device" : "from pages", plain, restored.mb_s, restored.cpu_s_gb);
    }
    std::printf("\n");
  }
  std::filesystem::remove_all(folder);
  return 0;
}

// What one server stores and another one, which has never seen it, reads.
int RunShared(const std::string& url, size_t mib) {
  RedisHome::Options options;
  auto address = RedisAddress::Parse(url);
  if (!address.ok()) return std::fprintf(stderr, "%s\n", address.status().message().c_str()), 2;
  options.address = *address;
  options.timeout = std::chrono::seconds(10);
  const StateKey key = StateKey::Of({1});
  const auto open = [&] {
    return RecordStore::Open(std::make_unique<RedisHome>(options, key), StoreLimits(), key);
  };
  const StateShape shape{size_t{1} << 20, size_t{16} << 20};
  for (uint64_t turn = 0; turn < 3; ++turn) {
    const auto tokens = Tokens(Mix64(static_cast<uint64_t>(::getpid()) + turn), mib * kBlockTokens);
    auto writer = open();
    auto begin = Clock::now();
    if (!writer.ok() || !Store(**writer, tokens, shape)) return 1;
    std::printf("stored at %.0f MB/s",
                static_cast<double>((*writer)->stats().bytes_written) / Seconds(begin) / 1e6);
    auto reader = open();
    begin = Clock::now();
    if ((*reader)->Look((*reader)->NamespaceOf("model", ""), tokens) == 0) return 1;
    while ((*reader)->Poll().looked.empty()) Pause();
    std::printf("; found in %.1f ms", Seconds(begin) * 1e3);
    const Restored restored = Restore(**reader, tokens, shape);
    std::printf(", restored at %.0f MB/s (%.2f s of threads a GB)\n", restored.mb_s,
                restored.cpu_s_gb);
  }
  return 0;
}

// Every part, packed and unpacked, by one thread.
int RunPack(const std::string& path) {
  auto folder = StateFolder::Open(path, StateFolder::Use::kLook);
  if (!folder.ok()) return std::fprintf(stderr, "%s\n", folder.status().message().c_str()), 1;
  const auto files = (*folder)->List();
  if (!files.ok()) return 1;
  struct Sum {
    double bytes = 0, packed = 0, pack_s = 0, unpack_s = 0;
  };
  Sum sums[2];  // K/V, snapshots
  for (const StateFolder::Listed& one : *files) {
    auto record = RecordFile::Open(**folder, StateKey(), one.name);
    for (size_t i = 0; record.ok() && i < record->layout().parts().size(); ++i) {
      const RecordLayout::Part& part = record->layout().parts()[i];
      std::vector<std::byte> bytes(part.bytes), again(part.bytes);
      if (!record->ReadPart(i, bytes).ok()) return 1;
      Sum& sum = sums[part.block_count == 0];
      double begin = CpuSeconds();
      const Packed packed = PackAny(bytes);
      sum.pack_s += CpuSeconds() - begin;
      sum.bytes += static_cast<double>(part.bytes);
      sum.packed += static_cast<double>(packed.width == 0 ? part.bytes : packed.bytes.size());
      begin = CpuSeconds();
      if (packed.width != 0 && !Unpack(packed.bytes, packed.width, again).ok()) return 1;
      sum.unpack_s += CpuSeconds() - begin;
      if (packed.width != 0 && again != bytes) return std::fprintf(stderr, "not the same\n"), 1;
    }
  }
  for (const Sum& sum : sums) {
    std::printf("%s: %.2f MB, %.3f times shorter; packed at %.0f MB/s, unpacked at %.0f MB/s\n",
                &sum == sums ? "K/V" : "snapshots", sum.bytes / 1e6, sum.bytes / sum.packed,
                sum.bytes / sum.pack_s / 1e6, sum.bytes / sum.unpack_s / 1e6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "pack") return RunPack(argv[2]);
  if (argc > 1 && std::string_view(argv[1]).starts_with("redis")) {
    return RunShared(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 512);
  }
  if (argc < 2) return std::fprintf(stderr, "usage: tier_bench FOLDER [RECORDS] [MIB]\n"), 2;
  if (std::filesystem::exists(argv[1])) return std::fprintf(stderr, "%s exists\n", argv[1]), 2;
  return Run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000,
             argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 512);
}
