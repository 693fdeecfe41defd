// SPDX-License-Identifier: Apache-2.0
// Proves the law of the house on every family and weight type: the logits of a token are a function
// of the model and the tokens up to it. The bits are the same for every split of a prompt, number
// of threads, instruction set, and company in the batch; and a device that fails on the way says so
// and changes nothing. REPRISE_LAW_DEVICE=cuda: splits, company and failures on that device;
// REPRISE_LAW_DEVICE=cpu,cpu,cpu: on several that compute every layer together.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>

#include "base/rng.h"
#include "device/cuda/refusals.h"
#include "device/disguised_memory.h"
#include "kernels/devices/devices.h"
#include "kernels/make_backend.h"
#include "model/model_fixture.h"
#include "tensor/codec.h"

namespace reprise {
namespace {

constexpr size_t kTokens = 83;
constexpr size_t kIsaTokens = 70;  // scalar code is slow; still more than one block of K/V

std::string Device() {
  const char* device = std::getenv("REPRISE_LAW_DEVICE");
  return device == nullptr ? "cpu" : device;
}

bool OnCpu() { return Device().starts_with("cpu"); }
bool OnMany() { return Device().find(',') != std::string::npos; }

// Sequences beside the one that is watched.
int Company() { return OnCpu() ? 16 : 64; }

// The devices that the law is proved on: one, or several that are one.
class LawMachine {
 public:
  explicit LawMachine(int threads, const std::string& devices = Device())
      : devices_(Make(threads, devices)) {}
  OpContext context() { return devices_->at(0); }
  // None: there is one.
  Devices* devices() { return devices_->split() ? devices_.get() : nullptr; }

 private:
  static std::unique_ptr<Devices> Make(int threads, const std::string& devices) {
    DeviceOptions options;
    options.threads = threads;
    if (devices.find(',') != devices.npos) options.split = Devices::Split::kRows;
    auto made = MakeDevices(devices, options);
    CHECK(made.ok());
    return std::move(*made);
  }

  const std::unique_ptr<Devices> devices_;
};

// The geometries are tests/law/<name>.json: a config.json each. Small, but with rows of 256 values
// so that every block format fits, and with more than one block of K/V.
std::vector<std::string> Geometries() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/law")) {
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Case {
  std::string geometry;
  std::string type;

  std::string name() const { return geometry + "_" + type; }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name(); }

// Every type on a dense and a hybrid model; on the others those that differ in how activations are
// prepared.
std::vector<Case> Cases() {
  const std::vector<std::string> all = {
      "f32",  "f16",  "bf16", "q8_0",   "q4_0",   "q4_1",  "q5_0",  "q5_1",  "q2_k", "q3_k",
      "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq1_m", "iq2_s", "iq3_s", "tq1_0"};
  const std::vector<std::string> some = {"f32", "q8_0", "q4_k"};
  std::vector<Case> cases;
  for (const std::string& geometry : Geometries()) {
    const bool full = geometry == "llama" || geometry == "qwen3_5";
    for (const std::string& type : full ? all : some) cases.push_back({geometry, type});
    if (geometry == "gpt_oss") cases.push_back({geometry, "mxfp4_moe"});
  }
  return cases;
}

// A GGUF file of the geometry with random weights.
std::string WriteSynthetic(const std::string& geometry, const std::string& type) {
  const std::string path = ::testing::TempDir() + "law_" + std::to_string(::getpid()) + "_" +
                           geometry + "_" + type + ".gguf";
  const auto file = MappedFile::Open("tests/law/" + geometry + ".json");
  CHECK(file.ok());
  const auto document = JsonDocument::Parse(
      {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
  CHECK(document.ok());
  const Family* family = *FindFamily(false, document->root().Find("model_type")->as_string());
  ConfigReader config(document->root());
  config.set_mtp(true);
  const auto model = family->make(&config, DType::kF16);
  CHECK(model.ok());
  RandomSource source(7);
  ThreadPool pool(1);
  GgufWriter writer;
  GgufExport request{family, model->get(), &source, *FindWeightMix(type), "law", path, nullptr};
  CHECK(ExportGguf(request, &writer, &pool).ok());
  return path;
}

// An f16 scale of about 2^-9 for a block of random bytes.
void SetScale(DType dtype, std::byte* block) {
  if (dtype != DType::kIQ1_M) {
    block[1] = std::byte{0x18};
    return;
  }
  constexpr std::byte kTop[] = {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x10}};
  for (int i = 0; i < 4; ++i) {  // its nibbles are on top of the last four words
    std::byte& byte = block[48 + 2 * i + 1];
    byte = (byte & std::byte{0x0F}) | kTop[i];
  }
}

// The same file with every matrix in random blocks of a type that nothing here quantises to: every
// bit pattern is a valid block.
std::string WriteRandomBlocks(const std::string& path, DType dtype) {
  const auto source = OpenCheckpoint(path);
  CHECK(source.ok());
  const auto file = MappedFile::Open(path);
  const auto gguf = GgufFile::Parse(file->bytes());
  GgufWriter writer;
  for (const GgufFile::Entry& entry : gguf->entries()) writer.PutValue(entry.key, entry.value);
  const auto type_of = [dtype](const StoredTensor& tensor) {
    return tensor.shape.rank() == 2 && tensor.shape.cols() % 256 == 0 ? dtype : DType::kF32;
  };
  for (const StoredTensor& tensor : gguf->tensors()) {
    CHECK(writer.AddTensor(tensor.name, type_of(tensor), tensor.shape).ok());
  }
  const std::string out = path + "." + std::string(NameOf(dtype)) + ".gguf";
  CHECK(writer.Open(out).ok());
  Rng rng(11);
  for (const StoredTensor& tensor : gguf->tensors()) {
    std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    if (type_of(tensor) == dtype) {
      bytes.resize(RowBytes(dtype, tensor.shape.elements()));
      for (std::byte& b : bytes) b = std::byte(rng.Below(256));
      const size_t block = size_t(TraitsOf(dtype).block_bytes);
      for (size_t at = 0; at < bytes.size(); at += block) SetScale(dtype, &bytes[at]);
    }
    CHECK(writer.Append(bytes).ok());
  }
  CHECK(writer.Finish().ok());
  return out;
}

std::vector<TokenId> RandomTokens(uint64_t seed, size_t count) {
  Rng rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = TokenId(rng.Below(96));
  return tokens;
}

constexpr std::array<std::string_view, 4> kOfCpusOnly = {"iq1_m", "iq2_s", "iq3_s", "tq1_0"};

class LawTest : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    for (const auto& [name, path] : files_) std::remove(path.c_str());
    files_.clear();
  }

  // The file of this family and type, written when it is first asked for.
  static const std::string& File(const std::string& geometry, const std::string& type) {
    std::string& path = files_[geometry + " " + type];
    if (path.empty()) {
      const std::optional<DType> dtype = FindDType(type);
      path = dtype && !CanQuantise(*dtype) ? WriteRandomBlocks(File(geometry, "f32"), *dtype)
                                           : WriteSynthetic(geometry, type);
    }
    return path;
  }

  template <typename Machine>
  std::unique_ptr<Model> Load(Machine* machine, DType kv = DType::kF16) const {
    LoadOptions options;
    options.kv = kv;
    options.mtp = true;
    const auto checkpoint = OpenCheckpoint(File(GetParam().geometry, GetParam().type));
    CHECK(checkpoint.ok());
    if constexpr (std::is_same_v<Machine, LawMachine>) options.devices = machine->devices();
    auto model = LoadModel(*checkpoint, machine->context(), options);
    if (!model.ok() && RefusedByDevice(model.status())) return nullptr;
    CHECK(model.ok());
    return std::move(*model);
  }
  // Types that only CPUs compute are refused elsewhere, by name.
  bool RefusedByDevice(const Status& status) const {
    const std::string& type = GetParam().type;
    if (OnCpu() || std::ranges::find(kOfCpusOnly, type) == kOfCpusOnly.end())
      return false;
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find(NameOf(*FindDType(type))), std::string::npos)
        << status.message();
    return true;
  }

  static inline std::map<std::string, std::string> files_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<size_t> RandomPieces(Rng* rng, size_t count) {
  std::vector<size_t> pieces;
  for (size_t left = count; left > 0; left -= pieces.back()) {
    const size_t most = rng->Below(3) == 0 ? left : std::min<size_t>(left, 9);
    pieces.push_back(1 + rng->Below(most));
  }
  return pieces;
}

TEST_P(LawTest, EverySplit) {
  LawMachine machine(1);
  const std::unique_ptr<Model> model = Load(&machine);
  if (model == nullptr) return;
  const std::vector<TokenId> tokens = RandomTokens(1, kTokens);
  const std::vector<float> whole = RunWhole(*model, machine.context(), tokens);
  ASSERT_TRUE(AllFinite(whole));
  if (OnMany()) {
    LawMachine one(1, Device().substr(0, Device().find(',')));
    ASSERT_TRUE(SameBits(RunWhole(*Load(&one), one.context(), tokens), whole)) << "one device";
  }
  for (size_t split = 1; split < kTokens; ++split) {
    const std::array<size_t, 2> pieces = {split, kTokens - split};
    ASSERT_TRUE(SameBits(RunInPieces(*model, machine.context(), tokens, pieces), whole))
        << "split after " << split;
  }
  Rng rng(2);
  for (int i = 0; i < 8; ++i) {
    const std::vector<size_t> pieces = RandomPieces(&rng, kTokens);
    ASSERT_TRUE(SameBits(RunInPieces(*model, machine.context(), tokens, pieces), whole))
        << ::testing::PrintToString(pieces);
  }
}

TEST_P(LawTest, EveryInstructionSet) {
  TestMachine first(1, "scalar");
  const std::unique_ptr<Model> reference = Load(&first);
  const std::vector<TokenId> tokens = RandomTokens(3, kIsaTokens);
  const std::vector<float> expected = RunWhole(*reference, first.context(), tokens);
  for (const std::string& isa : cpu::AvailableIsas()) {
    if (isa == "scalar") continue;
    TestMachine machine(1, isa);
    const std::unique_ptr<Model> model = Load(&machine);
    EXPECT_EQ(model->card().digest, reference->card().digest);
    ASSERT_TRUE(SameBits(RunWhole(*model, machine.context(), tokens), expected)) << isa;
  }
}

TEST_P(LawTest, EveryThreadCount) {
  TestMachine first(1);
  const std::unique_ptr<Model> reference = Load(&first);
  const std::vector<TokenId> tokens = RandomTokens(4, kTokens);
  const std::vector<float> expected = RunWhole(*reference, first.context(), tokens);
  const std::array<size_t, 3> pieces = {80, 2, 1};
  for (int threads = 2; threads <= 4; ++threads) {
    TestMachine machine(threads);
    const std::unique_ptr<Model> model = Load(&machine);
    ASSERT_TRUE(SameBits(RunInPieces(*model, machine.context(), tokens, pieces), expected))
        << threads << " threads";
  }
}

// Sequences of different lengths advance by different numbers of tokens in steps they share.
TEST_P(LawTest, EveryCompany) {
  LawMachine machine(2);
  const int company = Company();
  const std::unique_ptr<Model> model = Load(&machine, DType::kF32);
  if (model == nullptr) return;
  const size_t vocab = size_t(model->vocab_size());
  Rng rng(5);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> expected;
  for (int s = 0; s <= company; ++s) {
    const size_t length = s == 0 ? kTokens : 1 + rng.Below(kTokens);
    prompts.push_back(RandomTokens(uint64_t(100 + s), length));
    expected.push_back(RunWhole(*model, machine.context(), prompts.back()));
  }
  auto state = LiveState::Create(model->state_spec(), company + 1, int64_t(kTokens),
                                 model->StateMemoryOf(machine.context()));
  ASSERT_TRUE(state.ok());
  for (bool more = true; more;) {
    more = false;
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<int> owners;
    for (int i = 0; i <= company; ++i) {
      const int s = (i * 7 + int(state->length(0))) % (company + 1);  // every one once
      const size_t done = size_t(state->length(s));
      const size_t left = prompts[size_t(s)].size() - done;
      more = more || left > 0;
      if (left == 0 || rng.Below(4) == 0) continue;
      const size_t count = rng.Below(2) == 0 ? 1 : 1 + rng.Below(std::min<size_t>(left, 40));
      slices.push_back(state->Next(s, uint32_t(tokens.size()), uint32_t(count)));
      tokens.insert(tokens.end(), prompts[size_t(s)].begin() + int64_t(done),
                    prompts[size_t(s)].begin() + int64_t(done + count));
      owners.push_back(s);
    }
    if (tokens.empty()) continue;
    std::vector<uint32_t> rows(tokens.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = uint32_t(i);
    std::vector<float> logits(tokens.size() * vocab);
    ASSERT_TRUE(
        model->Forward(machine.context(), {tokens, slices, rows}, state->memory(), logits.data())
            .ok());
    for (size_t i = 0; i < slices.size(); ++i) {
      const int s = owners[i];
      const float* alone = expected[size_t(s)].data() + size_t(state->length(s)) * vocab;
      ASSERT_EQ(std::memcmp(logits.data() + slices[i].row_begin * vocab, alone,
                            slices[i].row_count * vocab * sizeof(float)),
                0)
          << "sequence " << s << " at " << state->length(s);
      state->Advance(s, slices[i].row_count);
    }
  }
}

// Rows that guess the next tokens, right ones and then wrong ones, of several sequences in a step:
// the rows behind right tokens have the logits, and leave the states, of tokens one by one.
TEST_P(LawTest, EveryDraft) {
  // There tests of the engine do the same on every family.
  if (OnCpu() && !OnMany() && GetParam().type != "f32") GTEST_SKIP() << "for other devices";
  constexpr int kSequences = 3, kDrafts = 7;
  constexpr size_t kLength = 40;
  LawMachine machine(1);
  const std::unique_ptr<Model> model = Load(&machine);
  if (model == nullptr) return;
  DeviceMemory& memory = model->StateMemoryOf(machine.context());
  const size_t vocab = size_t(model->vocab_size());
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::vector<std::byte>>> states;  // [sequence][tokens]
  for (int s = 0; s < kSequences; ++s) {
    texts.push_back(RandomTokens(uint64_t(20 + s), kLength));
    logits.push_back(RunWhole(*model, machine.context(), texts.back()));
    auto plain = LiveState::Create(model->state_spec(), 1, int64_t(kLength), memory);
    ASSERT_TRUE(plain.ok());
    states.emplace_back(1, plain->SaveState(0));
    for (const TokenId& token : texts.back()) {
      const SequenceSlice slice = plain->Next(0, 0, 1);
      const BatchView one = {std::span(&token, 1), std::span(&slice, 1), {}};
      ASSERT_TRUE(model->Forward(machine.context(), one, plain->memory(), nullptr).ok());
      plain->Advance(0, 1);
      states.back().push_back(plain->SaveState(0));
    }
  }
  // Behind the sequences: a state for each row of theirs.
  auto live = LiveState::Create(model->state_spec(), kSequences * (1 + kDrafts),
                                int64_t(kLength) + kDrafts, memory);
  ASSERT_TRUE(live.ok());
  const auto tap_of = [](int s, int row) { return kSequences + s * kDrafts + row - 1; };
  Rng rng(8);
  for (;;) {
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::array<std::vector<StateTap>, kSequences> taps;
    std::vector<int> owners, right;
    for (int s = 0; s < kSequences; ++s) {
      const auto at = size_t(live->length(s));
      if (at == kLength) continue;
      const int drafts = int(rng.Below(kDrafts + 1));
      owners.push_back(s);
      right.push_back(int(std::min(rng.Below(uint64_t(drafts) + 1), kLength - at - 1)));
      slices.push_back(live->Next(s, uint32_t(tokens.size()), uint32_t(1 + drafts)));
      for (int row = 0; row <= drafts; ++row) {
        const size_t place = at + size_t(row);
        tokens.push_back(row <= right.back() ? texts[size_t(s)][place] : TokenId(rng.Below(96)));
        if (row == 0 || model->state_spec().state_bytes() == 0) continue;
        taps[size_t(s)].push_back({uint32_t(row), live->Next(tap_of(s, row), 0, 0).state});
      }
      slices.back().taps = taps[size_t(s)];
    }
    if (owners.empty()) break;
    std::vector<uint32_t> rows(tokens.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = uint32_t(i);
    std::vector<float> seen(tokens.size() * vocab);
    ASSERT_TRUE(
        model->Forward(machine.context(), {tokens, slices, rows}, live->memory(), seen.data())
            .ok());
    for (size_t i = 0; i < owners.size(); ++i) {
      const int s = owners[i];
      const auto at = size_t(live->length(s));
      ASSERT_EQ(std::memcmp(seen.data() + slices[i].row_begin * vocab,
                            logits[size_t(s)].data() + at * vocab,
                            size_t(right[i] + 1) * vocab * sizeof(float)),
                0)
          << "sequence " << s << " at " << at;
      const auto& expected = states[size_t(s)];
      for (int row = 1; row <= right[i] && row < int(slices[i].row_count); ++row) {
        ASSERT_EQ(live->SaveState(tap_of(s, row)), expected[at + size_t(row)]) << "row " << row;
      }
      const bool all = right[i] + 1 == int(slices[i].row_count);
      const auto after = live->SaveState(all ? s : tap_of(s, right[i] + 1));
      ASSERT_EQ(after, expected[at + size_t(right[i]) + 1]) << "behind " << right[i] << " drafts";
      live->Advance(s, slices[i].row_count);
      live->Restore(s, int64_t(at) + right[i] + 1, after);
    }
  }
}

// State is read as stored, whatever it is stored as.
TEST_P(LawTest, EveryTypeOfKv) {
  const std::vector<TokenId> tokens = RandomTokens(6, kTokens);
  Rng rng(7);
  for (const DType kv : {DType::kBF16, DType::kQ8_0}) {
    TestMachine machine(1), two(2);
    const std::unique_ptr<Model> model = Load(&machine, kv), same = Load(&two, kv);
    const std::vector<float> whole = RunWhole(*model, machine.context(), tokens);
    ASSERT_TRUE(AllFinite(whole));
    for (int i = 0; i < 3; ++i) {
      const std::vector<size_t> pieces = RandomPieces(&rng, kTokens);
      ASSERT_TRUE(SameBits(RunInPieces(*same, two.context(), tokens, pieces), whole))
          << NameOf(kv) << " " << ::testing::PrintToString(pieces);
    }
  }
}

// --- A device that fails ---------------------------------------------------------------------

// Memory that refuses what it is told to.
class RefusingMemory final : public DisguisedMemory {
 public:
  Result<DeviceBuffer> Allocate(size_t bytes) override {
    if (refusals_.Refused()) return ResourceExhausted("the device has no more");
    return DisguisedMemory::Allocate(bytes);
  }
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Refusals& refusals() { return refusals_; }

 private:
  Refusals refusals_;
};

// A device whose failures are planted.
class FailingMachine {
 public:
  FailingMachine() : pool_(1), table_(*cpu::BuildTable("all")) {
    if (Device() == "cpu") {
      backend_ = std::make_unique<cpu::CpuBackend>(&pool_, &table_, memory_);
    } else {
      auto made = MakeBackend({Device(), 1, 0});
      CHECK(made.ok());
      backend_ = std::move(*made);
    }
    Renew();
  }
  OpContext context() { return {backend_.get(), scratch_.get()}; }
  Refusals& refusals() { return Device() == "cpu" ? memory_.refusals() : *backend_->refusals(); }
  // Memory to compute in is taken anew.
  void Renew() { scratch_ = std::make_unique<ScratchArena>(backend_->memory()); }

 private:
  ThreadPool pool_;
  const cpu::KernelTable table_;
  RefusingMemory memory_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ScratchArena> scratch_;
};

class FailureTest : public LawTest {
 protected:
  // Steps of a sequence that begins anew: a prompt, and some tokens of the same shape, which a
  // device may ask for as a graph. Returns the first error; with it, `logits` are not all there.
  static Status Run(const Model& model, const OpContext& context, LiveState* state,
                    std::span<const TokenId> tokens, std::vector<float>* logits) {
    state->Clear(0);
    logits->clear();
    for (size_t done = 0; done < tokens.size();) {
      const size_t count = done == 0 ? tokens.size() - 4 : 1;
      const auto last = uint32_t(count - 1);
      std::vector<float> row(size_t(model.vocab_size()));
      const SequenceSlice slice = state->Next(0, 0, uint32_t(count));
      REPRISE_TRY(model.Forward(
          context, {tokens.subspan(done, count), std::span(&slice, 1), std::span(&last, 1)},
          state->memory(), row.data()));
      state->Advance(0, int64_t(count));
      logits->insert(logits->end(), row.begin(), row.end());
      done += count;
    }
    return OkStatus();
  }

  void SetUp() override {
    model_ = Load(&machine_);
    tokens_ = RandomTokens(9, 70);
    auto state =
        LiveState::Create(model_->state_spec(), 1, 70, machine_.context().backend->memory());
    ASSERT_TRUE(state.ok());
    state_.emplace(std::move(*state));
    ASSERT_TRUE(Run(*model_, machine_.context(), &*state_, tokens_, &expected_).ok());
    ASSERT_TRUE(AllFinite(expected_));
  }

  // The error of a run in which something was planted; then the sequence runs again, and well.
  Status RunPlanted(const std::function<void()>& plant) {
    std::vector<float> logits;
    plant();
    const Status run = Run(*model_, machine_.context(), &*state_, tokens_, &logits);
    EXPECT_TRUE(!run.ok() || SameBits(logits, expected_));
    machine_.refusals().Plant(0, 0);
    machine_.context().backend->FailLaunch(0);
    EXPECT_TRUE(Run(*model_, machine_.context(), &*state_, tokens_, &logits).ok());
    EXPECT_TRUE(SameBits(logits, expected_));
    return run;
  }

  FailingMachine machine_;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> tokens_;
  std::optional<LiveState> state_;
  std::vector<float> expected_;
};

// Each request for memory of a prompt and some tokens in turn, and all from there on.
TEST_P(FailureTest, MemoryThatIsRefusedIsSaidAndTheSequenceCanRunAgain) {
  Refusals& refusals = machine_.refusals();
  machine_.Renew();
  const int64_t before = refusals.requests();
  std::vector<float> logits;
  ASSERT_TRUE(Run(*model_, machine_.context(), &*state_, tokens_, &logits).ok());
  const int64_t requests = refusals.requests() - before;
  ASSERT_GT(requests, 0);
  int said = 0;
  for (int64_t n = 1; n <= requests; ++n) {
    for (const int64_t count : {int64_t{1}, int64_t{1} << 40}) {
      machine_.Renew();
      const Status run = RunPlanted([&] { refusals.Plant(n, count); });
      if (run.ok()) continue;  // it did with less, or without
      ++said;
      EXPECT_TRUE(run.code() == StatusCode::kResourceExhausted ||
                  run.code() == StatusCode::kDataLoss)
          << run.message();
    }
  }
  EXPECT_GT(said, 0);
}

// Each launch in turn.
TEST_P(FailureTest, ALaunchThatDoesNotStartIsSaidAndTheSequenceCanRunAgain) {
  if (Device() == "cpu") GTEST_SKIP() << "nothing is launched";
  Backend& backend = *machine_.context().backend;
  int failed = 0;
  for (bool more = true; more; ++failed) {
    const Status run = RunPlanted([&] { backend.FailLaunch(failed + 1); });
    more = !run.ok();
    if (run.ok()) break;
    EXPECT_EQ(run.code(), StatusCode::kInternal);
    EXPECT_NE(run.message().find("did not start"), std::string::npos) << run.message();
  }
  EXPECT_GT(failed, 4);
}

std::vector<Case> FailureCases() {
  std::vector<Case> cases;
  for (const std::string& geometry : Geometries()) cases.push_back({geometry, "q8_0"});
  for (const char* type : {"f16", "f32", "q4_k"}) cases.push_back({"qwen3_5", type});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Families, FailureTest, ::testing::ValuesIn(FailureCases()),
                         [](const auto& param) { return param.param.name(); });

INSTANTIATE_TEST_SUITE_P(FamiliesAndTypes, LawTest, ::testing::ValuesIn(Cases()),
                         [](const auto& param) { return param.param.name(); });

}  // namespace
}  // namespace reprise
