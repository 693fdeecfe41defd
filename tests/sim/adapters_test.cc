// SPDX-License-Identifier: Apache-2.0
// Adapters never meet each other's state: random requests over adapters that come, go, change
// their content under one name, have two names, are evicted and read again, and of which some count
// from what invokes them on, on tiny models; every logit has the bits of a cold run with the
// adapter that the request named. REPRISE_ADAPTER_REQUESTS=10000 is the long form.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/mapped_file.h"
#include "engine/adapters/adapter_shelf.h"
#include "engine_fixture.h"
#include "model/adapter/adapter.h"
#include "model/executor.h"
#include "model/model_fixture.h"

namespace reprise {
namespace {

constexpr int kVariants = 5;
// What invokes the last ones. Two have the same tokens, and one begins as they do.
const char* const kInvocations[kVariants] = {nullptr, nullptr, "[5, 9]", "[5, 9]", "[5]"};

// An adapter of the family with other values: every so many have the other sign.
void WriteVariant(const std::string& family, int variant, const std::string& folder) {
  std::filesystem::copy("tests/adapters/" + family, folder);
  const std::string path = folder + "/adapter_model.safetensors";
  auto bytes = ReadFile(path, size_t{1} << 20);
  CHECK(bytes.ok());
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(*bytes)));
  CHECK(file.ok());
  std::string changed = *bytes;
  for (const StoredTensor& tensor : file->tensors()) {
    const size_t begin = size_t(tensor.bytes.data() - std::as_bytes(std::span(*bytes)).data());
    const size_t width = RowBytes(tensor.dtype, 1);
    for (size_t i = 0; i < tensor.bytes.size() / width; i += size_t(variant) + 2) {
      char& sign = changed[begin + (i + 1) * width - 1];
      sign = char(sign ^ char(0x80));
    }
  }
  CHECK(WriteFileAtomically(path, std::as_bytes(std::span(changed))).ok());
  if (kInvocations[variant] == nullptr) return;
  const std::string config = folder + "/adapter_config.json";
  std::string text = *ReadFile(config, size_t{1} << 20);
  const std::string key = "\"alora_invocation_tokens\": ";
  const size_t at = text.find(key + "null");
  CHECK(at != std::string::npos);
  text.replace(at + key.size(), 4, kInvocations[variant]);
  CHECK(WriteFileAtomically(config, std::as_bytes(std::span(text))).ok());
}

class World {
 public:
  World(const std::string& family, uint64_t seed)
      : rng_(seed), folder_(testing::TempDir() + "/adapters_" + std::to_string(::getpid())) {
    auto checkpoint = OpenCheckpoint("tests/golden/" + family);
    CHECK(checkpoint.ok());
    LoadOptions options;
    options.context_tokens = 256;
    auto model = LoadModel(*checkpoint, machine_.context(), options);
    CHECK(model.ok());
    model_ = std::move(*model);
    executor_.emplace(*model_, machine_.context());
    CacheOptions cache;
    cache.context_tokens = 256;
    cache.sequence_count = 4;
    cache.snapshot_gap = 8;
    cache.budget_bytes = 3 * LeastBudget(model_->state_spec(), cache);  // so that much is evicted
    fixture_.emplace(*executor_, cache);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    for (int v = 0; v < kVariants; ++v) WriteVariant(family, v, PathOf(v));
    const auto read = [this](const std::string& path, double scale) { return Read(path, scale); };
    const size_t one = (*Read(PathOf(0), 1))->bytes();
    shelf_.emplace(read, 5 * one / 2);
  }
  ~World() { std::filesystem::remove_all(folder_); }

  void Act() {
    switch (rng_.Below(8)) {
      case 0:
        Load();
        break;
      case 1:
        if (rng_.Below(3) == 0) Unload();
        break;
      default:
        Ask();
    }
    for (uint64_t steps = rng_.Below(12); steps > 0; --steps) (void)fixture_->engine().Step();
    if (rng_.Below(10) == 0) fixture_->RunAll();
    fixture_->clock().AdvanceMs(5);
    TakeAnswers();
  }
  void Finish() {
    fixture_->RunAll();
    TakeAnswers();
    EXPECT_TRUE(asked_.empty());
  }

  int requests() const { return requests_; }
  int64_t reused() const { return reused_; }
  int evicted() const { return evicted_; }
  int64_t compared() const { return compared_; }
  int invoked() const { return invoked_; }

 private:
  // What a name stands for.
  struct Content {
    int variant = -1;  // -1: the model itself
    double scale = 1;
    auto operator<=>(const Content&) const = default;
  };
  struct Row {
    int32_t position;
    std::vector<float> logits;
  };
  struct Asked {
    Content content;
    std::vector<TokenId> tokens;
    size_t prompt_tokens = 0;
    std::vector<Row> rows;
    std::shared_ptr<TokenStream> stream;
  };

  std::string PathOf(int variant) const { return folder_ + "/" + std::to_string(variant); }

  Result<AdapterPtr> Read(const std::string& path, double scale) {
    REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
    return Adapter::Load(file, scale, *model_->adaptable(), machine_.context());
  }

  std::string AnyName() { return std::string(1, char('a' + rng_.Below(5))); }

  void Load() {
    const Content content{int(rng_.Below(kVariants)), rng_.Below(3) == 0 ? 0.5 : 1.0};
    const std::string name = AnyName();
    const Status added =
        shelf_->Add(name, PathOf(content.variant), content.scale, /*replace=*/true);
    if (!added.ok()) {
      EXPECT_EQ(added.code(), StatusCode::kResourceExhausted) << added.message();
      return;
    }
    names_[name] = content;
  }

  void Unload() {
    const std::string name = AnyName();
    EXPECT_EQ(shelf_->Remove(name).ok(), names_.erase(name) == 1);
  }

  // A prompt that begins as one before it did, most often; whose, does not matter.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt;
    if (!known_.empty() && rng_.Below(8) > 0) {
      prompt = known_[rng_.Below(known_.size())];
      if (rng_.Below(2) == 0) prompt.resize(1 + rng_.Below(prompt.size()));
    }
    for (uint64_t more = 1 + rng_.Below(40); more > 0 && prompt.size() < 180; --more) {
      prompt.push_back(TokenId(rng_.Below(uint64_t(model_->vocab_size()))));
      if (rng_.Below(20) == 0) prompt.insert(prompt.end(), {5, 9});
    }
    return prompt;
  }

  void Ask() {
    auto asked = std::make_unique<Asked>();
    GenerateRequest request;
    const std::string name = AnyName();
    if (const auto known = names_.find(name); known != names_.end()) {
      asked->content = known->second;
      Result<AdapterPtr> adapter = shelf_->Take(name);
      if (rng_.Below(5) == 0) {  // by its number, with another scale
        const auto entries = shelf_->List();
        const auto entry =
            std::find_if(entries.begin(), entries.end(),
                         [&](const AdapterShelf::Entry& one) { return one.name == name; });
        asked->content.scale = rng_.Below(2) == 0 ? 0 : -0.7;
        adapter = shelf_->Take(entry->id, asked->content.scale);
      }
      if (!adapter.ok()) {  // all that is in memory is in use
        EXPECT_EQ(adapter.status().code(), StatusCode::kResourceExhausted);
        return;
      }
      request.adapter = std::move(*adapter);
    }
    for (const AdapterShelf::Entry& entry : shelf_->List()) evicted_ += entry.resident ? 0 : 1;
    request.prompt = asked->tokens = Prompt();
    asked->prompt_tokens = asked->tokens.size();
    request.max_tokens = int32_t(rng_.Below(12));
    request.idle = request.max_tokens == 0 && rng_.Below(3) == 0;
    request.boundaries = {{int32_t(request.prompt.size() / 2), BoundaryKind::kMessage}};
    request.on_logits = [at = asked.get()](int32_t position, std::span<const float> logits) {
      at->rows.push_back({position, {logits.begin(), logits.end()}});
    };
    asked->stream = fixture_->Submit(std::move(request));
    asked_.push_back(std::move(asked));
    ++requests_;
  }

  void TakeAnswers() {
    for (size_t i = 0; i < asked_.size();) {
      Asked& asked = *asked_[i];
      TokenStream::Update update = asked.stream->Poll();
      for (const GeneratedToken& token : update.tokens) asked.tokens.push_back(token.chosen.token);
      if (!update.completion) {
        ++i;
        continue;
      }
      ASSERT_NE(update.completion->reason, FinishReason::kFailed);
      reused_ += update.completion->report.used_tokens;
      Compare(asked);
      known_.push_back(asked.tokens);
      if (known_.size() > 12) known_.erase(known_.begin() + ptrdiff_t(rng_.Below(12)));
      asked_.erase(asked_.begin() + ptrdiff_t(i));
    }
  }

  void Compare(const Asked& asked) {
    if (asked.rows.empty()) return;
    // Read for this run alone: nothing is shared with what is tested.
    AdapterPtr adapter;
    if (asked.content.variant >= 0) {
      adapter = *Read(PathOf(asked.content.variant), asked.content.scale);
    }
    auto state = LiveState::Create(model_->state_spec(), 1, int64_t(asked.tokens.size()));
    SequenceSlice slice = state->Next(0, 0, uint32_t(asked.tokens.size()));
    const auto prompt = std::span(asked.tokens).first(asked.prompt_tokens);
    if (const auto from = adapter ? adapter->CountsFrom(prompt) : std::nullopt) {
      slice.adapter = adapter.get();
      slice.adapted_from = uint32_t(*from);
      invoked_ += *from > 0 ? 1 : 0;
    }
    std::vector<uint32_t> rows(asked.tokens.size());
    for (uint32_t r = 0; r < rows.size(); ++r) rows[r] = r;
    const size_t vocab = size_t(model_->vocab_size());
    std::vector<float> cold(rows.size() * vocab);
    CHECK(model_
              ->Forward(machine_.context(), {asked.tokens, std::span(&slice, 1), rows},
                        state->memory(), cold.data())
              .ok());
    for (const Row& row : asked.rows) {
      ASSERT_EQ(0, std::memcmp(row.logits.data(), &cold[size_t(row.position) * vocab],
                               vocab * sizeof(float)))
          << "request " << requests_ << ", position " << row.position;
      ++compared_;
    }
  }

  Rng rng_;
  const std::string folder_;
  TestMachine machine_;
  std::unique_ptr<Model> model_;
  std::optional<ModelExecutor> executor_;
  std::optional<EngineFixture> fixture_;
  std::optional<AdapterShelf> shelf_;
  std::map<std::string, Content> names_;
  std::vector<std::unique_ptr<Asked>> asked_;
  std::vector<std::vector<TokenId>> known_;
  int requests_ = 0;
  int evicted_ = 0;
  int64_t reused_ = 0;
  int64_t compared_ = 0;
  int invoked_ = 0;
};

class AdaptersLaw : public testing::TestWithParam<std::string> {};

TEST_P(AdaptersLaw, NoRequestMeetsTheStateOfAnotherAdapter) {
  const char* const wanted = std::getenv("REPRISE_ADAPTER_REQUESTS");
  const int requests = wanted != nullptr ? std::atoi(wanted) : 250;
  World world(GetParam(), 17);
  while (world.requests() < requests && !HasFatalFailure()) world.Act();
  world.Finish();
  EXPECT_GT(world.reused(), 0);
  EXPECT_GT(world.evicted(), 0);
  EXPECT_GT(world.invoked(), 0);
  RecordProperty("compared", std::to_string(world.compared()));
  RecordProperty("reused", std::to_string(world.reused()));
}

INSTANTIATE_TEST_SUITE_P(Families, AdaptersLaw,
                         testing::Values("llama", "nemotron_h", "qwen3_5", "qwen3_moe"),
                         [](const auto& family) { return family.param; });

// Before what invokes an adapter, its requests go on from the model's own state, and leave such
// state; from there on they share with requests that have the same one, and with nobody else.
TEST(ActivatedAdapters, ShareTheStateBeforeTheyAreInvoked) {
  constexpr int32_t kBefore = 70;
  TestMachine machine;
  auto checkpoint = OpenCheckpoint("tests/golden/qwen3");
  ASSERT_TRUE(checkpoint.ok());
  LoadOptions options;
  options.context_tokens = 256;
  const auto model = LoadModel(*checkpoint, machine.context(), options);
  ASSERT_TRUE(model.ok());
  ModelExecutor executor(**model, machine.context());
  CacheOptions cache;
  cache.context_tokens = 256;
  cache.budget_bytes = size_t{8} << 20;
  EngineFixture fixture(executor, cache);
  const auto file = AdapterFile::Open("tests/adapters/qwen3__activated");
  ASSERT_TRUE(file.ok());
  const auto load = [&](double scale) {
    return *Adapter::Load(*file, scale, *(*model)->adaptable(), machine.context());
  };
  const AdapterPtr one = load(1), other = load(0.5);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < kBefore; ++i) prompt.push_back(20 + i);
  const auto used = [&](const AdapterPtr& adapter, bool invokes) {
    GenerateRequest request;
    request.adapter = adapter;
    request.prompt = prompt;
    const auto& tokens = one->invocation();
    if (invokes) request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    for (TokenId more = 100; more < 120; ++more) request.prompt.push_back(more);
    request.max_tokens = 1;
    const auto stream = fixture.Submit(std::move(request));
    fixture.RunAll();
    return stream->Poll().completion->report.used_tokens;
  };
  EXPECT_EQ(used(nullptr, false), 0);
  EXPECT_EQ(used(one, true), kBefore);  // of the model
  EXPECT_EQ(used(one, true), kBefore + 22);
  EXPECT_EQ(used(other, true), kBefore);  // nothing of another adapter
  EXPECT_EQ(used(nullptr, true), kBefore);
  EXPECT_EQ(used(one, false), kBefore + 19);  // not invoked: the model itself
}

// Two names of one content are one adapter; other content under an old name is another.
TEST(AdapterShelfTest, ContentDecidesWhatIsShared) {
  TestMachine machine;
  auto checkpoint = OpenCheckpoint("tests/golden/llama");
  ASSERT_TRUE(checkpoint.ok());
  const auto model = LoadModel(*checkpoint, machine.context(), {});
  ASSERT_TRUE(model.ok());
  const std::string folder = testing::TempDir() + "/shelf_" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  WriteVariant("llama", 1, folder);
  int reads = 0;
  AdapterShelf shelf(
      [&](const std::string& path, double scale) -> Result<AdapterPtr> {
        ++reads;
        REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
        return Adapter::Load(file, scale, *(*model)->adaptable(), machine.context());
      },
      size_t{64} << 20);
  const std::string path = "tests/adapters/llama";
  ASSERT_TRUE(shelf.Add("one", path, 1).ok());
  ASSERT_TRUE(shelf.Add("two", path, 1).ok());
  EXPECT_EQ(*shelf.Take("one"), *shelf.Take("two"));
  EXPECT_FALSE(shelf.Add("one", path, 1).ok());
  EXPECT_EQ(shelf.Take("three").status().code(), StatusCode::kNotFound);
  const AdapterPtr before = *shelf.Take("two");
  ASSERT_TRUE(shelf.Add("two", folder, 1, /*replace=*/true).ok());
  EXPECT_NE(before->digest(), (*shelf.Take("two"))->digest());
  // Unloaded, it stays with those who have it.
  ASSERT_TRUE(shelf.Remove("one").ok());
  EXPECT_FALSE(shelf.Has("one"));
  EXPECT_GT(before->bytes(), 0u);
  const int before_take = reads;
  (void)*shelf.Take("two");
  EXPECT_EQ(reads, before_take);
  std::filesystem::remove_all(folder);
}

// What is not in memory is read again, and must still be what it was.
TEST(AdapterShelfTest, ChangedFilesAreNotServedUnderAnOldName) {
  TestMachine machine;
  auto checkpoint = OpenCheckpoint("tests/golden/llama");
  ASSERT_TRUE(checkpoint.ok());
  const auto model = LoadModel(*checkpoint, machine.context(), {});
  ASSERT_TRUE(model.ok());
  const std::string folder = testing::TempDir() + "/changed_" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  WriteVariant("llama", 1, folder);
  const auto read = [&](const std::string& path, double scale) -> Result<AdapterPtr> {
    REPRISE_ASSIGN(const AdapterFile file, AdapterFile::Open(path));
    return Adapter::Load(file, scale, *(*model)->adaptable(), machine.context());
  };
  const size_t one = (*read(folder, 1))->bytes();
  AdapterShelf shelf(read, one + one / 2);
  ASSERT_TRUE(shelf.Add("old", folder, 1).ok());
  {
    const AdapterPtr used = *shelf.Take("old");
    const Status refused = shelf.Add("new", "tests/adapters/llama", 1);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);  // one in use does not make way
  }
  ASSERT_TRUE(shelf.Add("new", "tests/adapters/llama", 1).ok());
  EXPECT_LE(shelf.bytes(), one + one / 2);
  std::filesystem::remove_all(folder);
  WriteVariant("llama", 2, folder);
  EXPECT_EQ(shelf.Take("old").status().code(), StatusCode::kFailedPrecondition);
  std::filesystem::remove_all(folder);
  WriteVariant("llama", 1, folder);
  EXPECT_TRUE(shelf.Take("old").ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace reprise
