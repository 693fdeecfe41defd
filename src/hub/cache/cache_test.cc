// SPDX-License-Identifier: Apache-2.0
// The layout of the cache, its locks, and what is found, removed and verified there.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "hub/cache/cache_folder.h"
#include "hub/cache/digest.h"
#include "hub/cache/file_lock.h"
#include "hub/cache/inventory.h"
#include "hub/pull.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, '1');
const std::string kOlder(40, '2');

std::string DigestOf(const std::string& text, size_t digits = 64) {
  Digest digest(std::string(digits, '0'), text.size());
  digest.Add(text);
  return digest.Finish();
}

class Cache : public testing::Test {
 protected:
  Cache() : cache_(Folder()) {}

  static std::string Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string path =
        (base == nullptr ? fs::temp_directory_path().string() : base) + std::string("/hub_cache");
    fs::remove_all(path);
    return path;
  }

  // A file of a snapshot with its blob.
  HubFile Put(const std::string& commit, const std::string& path, const std::string& text) {
    const HubFile file{path, text.size(), DigestOf(text)};
    fs::create_directories(cache_.RepoPath("org/repo") + "/blobs");
    std::ofstream(cache_.BlobPath("org/repo", file.digest)) << text;
    EXPECT_TRUE(cache_.Link("org/repo", commit, file).ok());
    return file;
  }

  CacheFolder cache_;
};

TEST_F(Cache, DigestsAreSha256AndGits) {
  EXPECT_EQ(DigestOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(DigestOf("what is up, doc?", 40), "bd9dbf5aae1a3862dd1526723246b20206e5fc37");
}

TEST_F(Cache, HasTheLayoutOfTheHubsTools) {
  const HubFile file = Put(kCommit, "sub/m.gguf", "weights");
  const std::string link =
      cache_.path() + "/models--org--repo/snapshots/" + kCommit + "/sub/m.gguf";
  EXPECT_EQ(fs::read_symlink(link), "../../../blobs/" + file.digest);
  EXPECT_TRUE(fs::exists(link));
  ASSERT_TRUE(cache_.WriteRef("org/repo", "refs/pr/1", kCommit).ok());
  std::string ref;
  std::ifstream(cache_.path() + "/models--org--repo/refs/refs/pr/1") >> ref;
  EXPECT_EQ(ref, kCommit);
  EXPECT_EQ(cache_.LockPath("org/repo", "d"), cache_.path() + "/.locks/models--org--repo/d.lock");
  EXPECT_TRUE(cache_.HasBlob("org/repo", file));
  EXPECT_FALSE(cache_.HasBlob("org/repo", {file.path, file.bytes + 1, file.digest}));
}

// Pulls of one model at the same moment in one server.
TEST_F(Cache, ThreadsWriteOneRef) {
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; ++i) {
        const std::string& commit = (thread + i) % 2 == 0 ? kCommit : kOlder;
        failed += cache_.WriteRef("org/repo", "main", commit).ok() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(cache_.ReadRef("org/repo", "main").has_value());
}

TEST_F(Cache, ARefThatIsNoCommitIsNone) {
  ASSERT_TRUE(cache_.WriteRef("org/repo", "main", kCommit).ok());
  EXPECT_EQ(cache_.ReadRef("org/repo", "main"), kCommit);
  std::ofstream(cache_.RepoPath("org/repo") + "/refs/main") << "../../elsewhere";
  EXPECT_FALSE(cache_.ReadRef("org/repo", "main").has_value());
}

TEST_F(Cache, ALockExcludesAndIsReleased) {
  const std::string path = cache_.LockPath("org/repo", "d");
  auto first = FileLock::Try(path);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_FALSE(FileLock::Try(path)->has_value());
  const std::atomic<bool> cancelled{true};
  EXPECT_EQ(FileLock::Take(path, &cancelled, nullptr).status().code(), StatusCode::kCancelled);
  first->reset();
  EXPECT_TRUE(FileLock::Try(path)->has_value());
}

TEST_F(Cache, OnlyWholeModelsAreFound) {
  const auto find = [&](const std::string& name, bool any = false) {
    const auto path = FindInCache(cache_, *ModelName::Parse(name), any);
    return path.ok() ? path->substr(cache_.SnapshotPath("org/repo", kCommit).size()) : "none";
  };
  Put(kCommit, "m-Q8_0.gguf", "eight");
  EXPECT_EQ(find("org/repo:q8_0"), "none");  // no revision leads there
  EXPECT_EQ(find("org/repo:q8_0", true), "/m-Q8_0.gguf");
  ASSERT_TRUE(cache_.WriteRef("org/repo", "main", kCommit).ok());
  EXPECT_EQ(find("org/repo:q8_0"), "/m-Q8_0.gguf");
  EXPECT_EQ(find("org/repo"), "/m-Q8_0.gguf");
  EXPECT_EQ(find("org/repo:Q4_0"), "none");
  Put(kCommit, "p-F16-00001-of-00002.gguf", "one");
  EXPECT_EQ(find("org/repo:F16"), "none");
  Put(kCommit, "p-F16-00002-of-00002.gguf", "two");
  EXPECT_EQ(find("org/repo:F16"), "/p-F16-00001-of-00002.gguf");
  // A link whose blob is not there (yet) is no file.
  Put(kCommit, "n-Q6_K.gguf", "six");
  fs::remove(cache_.BlobPath("org/repo", DigestOf("six")));
  EXPECT_EQ(find("org/repo:Q6_K"), "none");
}

TEST_F(Cache, AFolderNeedsEveryShardOfItsIndexAndATokenizer) {
  const ModelName name = *ModelName::Parse("org/repo");
  ASSERT_TRUE(cache_.WriteRef("org/repo", "main", kCommit).ok());
  Put(kCommit, "config.json", "{}");
  Put(kCommit, "model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors",)"
      R"("b": "model-00002-of-00002.safetensors"}})");
  Put(kCommit, "model-00001-of-00002.safetensors", "1");
  Put(kCommit, "tokenizer.json", "{ }");
  EXPECT_FALSE(FindInCache(cache_, name).ok());
  Put(kCommit, "model-00002-of-00002.safetensors", "2");
  ASSERT_TRUE(FindInCache(cache_, name).ok());
  EXPECT_EQ(*FindInCache(cache_, name), cache_.SnapshotPath("org/repo", kCommit));
  fs::remove(cache_.SnapshotPath("org/repo", kCommit) + "/tokenizer.json");
  EXPECT_FALSE(FindInCache(cache_, name).ok());
}

TEST_F(Cache, RemovingOneModelKeepsWhatOthersLinkTo) {
  ASSERT_TRUE(cache_.WriteRef("org/repo", "main", kCommit).ok());
  Put(kCommit, "a-Q8_0.gguf", "eight");
  Put(kOlder, "a-Q8_0.gguf", "eight");
  const HubFile four = Put(kCommit, "a-Q4_0.gguf", "four");
  Put(kOlder, "a-Q8_0.gguf", "older");
  EXPECT_EQ(ListModels(cache_).models.size(), 3u);  // two, and one of an older commit
  const auto freed = RemoveModel(cache_, *ModelName::Parse("org/repo:Q8_0"));
  ASSERT_TRUE(freed.ok()) << freed.status().message();
  EXPECT_EQ(*freed, 10u);
  EXPECT_TRUE(cache_.HasBlob("org/repo", four));
  ASSERT_EQ(ListModels(cache_).models.size(), 1u);
  EXPECT_EQ(ListModels(cache_).models[0].name, "org/repo:Q4_0");
  {
    const auto lock = FileLock::Try(cache_.LockPath("org/repo", "d"));
    EXPECT_FALSE(RemoveModel(cache_, *ModelName::Parse("org/repo")).ok());  // is being fetched
  }
  EXPECT_TRUE(RemoveModel(cache_, *ModelName::Parse("org/repo")).ok());
  EXPECT_FALSE(fs::exists(cache_.RepoPath("org/repo")));
  EXPECT_FALSE(RemoveModel(cache_, *ModelName::Parse("org/repo")).ok());
}

TEST_F(Cache, VerifyFindsWhatIsDamagedAndWhatIsMissing) {
  const HubFile good = Put(kCommit, "a-Q8_0.gguf", "eight");
  const HubFile bad = Put(kCommit, "a-Q4_0.gguf", "four");
  const HubFile gone = Put(kCommit, "a-Q2_K.gguf", "two");
  std::vector<std::string> sentences;
  const auto verify = [&] {
    sentences.clear();
    return *VerifyRepo(cache_, "org/repo",
                       [&](const std::string& sentence) { sentences.push_back(sentence); });
  };
  EXPECT_EQ(verify(), 12u);
  EXPECT_TRUE(sentences.empty());
  std::ofstream(cache_.BlobPath("org/repo", bad.digest)) << "fouR";
  fs::remove(cache_.BlobPath("org/repo", gone.digest));
  verify();
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_NE(sentences[0].find(bad.digest), std::string::npos);
  EXPECT_NE(sentences[1].find(gone.digest), std::string::npos);
}

}  // namespace
}  // namespace reprise::hub
