// SPDX-License-Identifier: Apache-2.0
// Proves that a process may be killed at any moment: the next one starts, finds all that was said
// to be stored (unless it made room), finds nothing wrong, and the folder keeps its bound.
// REPRISE_CRASHES=5000 for the long form.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/record_store.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 40'000, kState = 30'000;
constexpr uint64_t kConversations = 40;

std::vector<TokenId> Tokens(uint64_t conversation) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 400; ++i) {
    tokens.push_back(static_cast<TokenId>(RandomAt(conversation, i) % 1000));
  }
  return tokens;
}

// The state after `end` tokens of a path, for a block (by what it reaches up to) or a snapshot.
std::byte ByteAt(const PathId& id, size_t i) {
  uint64_t word = 0;
  std::memcpy(&word, id.bytes.data(), 8);
  return static_cast<std::byte>(Mix64(word + i / 512));
}

// Every other life writes compressed records.
DiskOptions OptionsOf(const std::string& path, uint64_t life = 0) {
  DiskOptions options;
  options.path = path;
  options.compress = life % 2 != 0;
  options.bytes_max = 4 << 20;
  return options;
}

void Store(RecordStore& tier, uint64_t conversation, int32_t position) {
  const auto tokens = Tokens(conversation);
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto draft = tier.BeginStore(path, {position, {kBlock, kState}, {}});
  if (!draft) return;
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    std::vector<std::byte> bytes(part.bytes);
    for (size_t at = 0; at < bytes.size(); ++at) {
      const int32_t block = static_cast<int32_t>(part.first_block + at / kBlock);
      const bool state = part.block_count == 0;
      const int32_t end = state ? position : std::min(position, (block + 1) * kBlockTokens);
      static thread_local std::map<int32_t, PathId> ids;  // digests are slow, bytes are many
      if (at == 0) ids.clear();
      const auto [id, added] = ids.try_emplace(end);
      if (added) id->second = path.At(end);
      bytes[at] = ByteAt(id->second, state ? at : at % kBlock);
    }
    tier.AddPart(std::move(bytes));
  }
  while (!tier.settled()) {
    tier.Poll();
    std::this_thread::yield();
  }
}

// Stores without end, and says through the pipe what was stored: conversation, position.
[[noreturn]] void Work(const std::string& path, uint64_t seed, int pipe) {
  auto tier = RecordStore::Open(OptionsOf(path, seed), StateKey());
  if (!tier.ok()) ::_exit(3);
  Rng rng(seed);
  for (;;) {
    const uint64_t conversation = rng.Below(kConversations);
    const auto position = static_cast<int32_t>(60 + 35 * rng.Below(9));
    const uint64_t before = (*tier)->stats().stores;
    Store(**tier, conversation, position);
    if ((*tier)->stats().stores == before) continue;
    const uint64_t said[2] = {conversation, static_cast<uint64_t>(position)};
    if (::write(pipe, said, sizeof(said)) != sizeof(said)) ::_exit(4);
  }
}

// What is found of a conversation: its position, 0: nothing, -1: something wrong.
int32_t Load(RecordStore& tier, uint64_t conversation) {
  const auto tokens = Tokens(conversation);
  const PromptPath path(tier.NamespaceOf("model", ""), tokens);
  const auto found = tier.Find(path, 0, 399);
  if (!found) return 0;
  if (tier.Fetch(*found, {kBlock, kState}) == 0) return -1;
  std::vector<RecordStore::Fetched> done;
  while (done.empty()) {
    done = std::move(tier.Poll().fetched);
    std::this_thread::yield();
  }
  if (!done[0].status.ok()) return -1;
  const auto bytes = done[0].bytes.bytes();
  const int32_t position = done[0].position;
  for (uint32_t block = 0; block < done[0].block_count; ++block) {
    const PathId id = path.At(std::min(position, (static_cast<int32_t>(block) + 1) * kBlockTokens));
    for (size_t i = 0; i < kBlock; i += 97) {
      if (bytes[block * kBlock + i] != ByteAt(id, i)) return -1;
    }
  }
  const PathId id = path.At(position);
  for (size_t i = 0; i < kState; i += 97) {
    if (bytes[done[0].block_count * kBlock + i] != ByteAt(id, i)) return -1;
  }
  return position;
}

uint64_t FolderBytes(const std::string& path) {
  uint64_t bytes = 0;
  for (const auto& one : fs::directory_iterator(path)) {
    if (one.path().extension() == ".state") bytes += fs::file_size(one.path());
  }
  return bytes;
}

TEST(Crash, AtAnyMoment) {
  const char* wanted = std::getenv("REPRISE_CRASHES");
  const uint64_t crashes = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 40;
  const std::string path = testing::TempDir() + "crash";
  fs::remove_all(path);
  Rng rng(1);
  uint64_t stored = 0, found = 0;
  for (uint64_t crash = 0; crash < crashes; ++crash) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();  // no other thread runs here now
    ASSERT_GE(child, 0);
    if (child == 0) Work(path, crash, ends[1]);
    ::close(ends[1]);
    // Every other one has stored something, however slow the machine is.
    pollfd first = {ends[0], POLLIN, 0};
    if (crash % 2 == 0) (void)::poll(&first, 1, 10'000);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(60'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a start failed: " << WEXITSTATUS(status);
    std::vector<std::pair<uint64_t, int32_t>> said;
    uint64_t one[2];
    while (::read(ends[0], one, sizeof(one)) == sizeof(one)) {
      said.push_back({one[0], static_cast<int32_t>(one[1])});
    }
    ::close(ends[0]);
    if (!fs::exists(path)) continue;  // it did not get so far
    // A record that is on its way when its process is killed takes room, too, until the next start.
    ASSERT_LE(FolderBytes(path), OptionsOf(path).bytes_max);
    auto tier = RecordStore::Open(OptionsOf(path), StateKey());
    ASSERT_TRUE(tier.ok()) << tier.status().message();
    ASSERT_EQ((*tier)->stats().unreadable, 0u);
    std::map<uint64_t, int32_t> positions;
    for (uint64_t i = 0; i < kConversations; ++i) {
      positions[i] = Load(**tier, i);
      ASSERT_GE(positions[i], 0) << "conversation " << i << " after crash " << crash;
      found += positions[i] > 0;
    }
    ASSERT_EQ((*tier)->stats().damaged, 0u);
    // The last of what was said to be stored has made no room since.
    if (!said.empty()) {
      ASSERT_GE(positions[said.back().first], said.back().second);
    }
    stored += said.size();
  }
  std::printf("%llu crashes, %llu records stored, %llu found\n",
              static_cast<unsigned long long>(crashes), static_cast<unsigned long long>(stored),
              static_cast<unsigned long long>(found));
  if (crashes >= 40) {
    EXPECT_GT(stored, 10u);
  }
}

}  // namespace
}  // namespace reprise
