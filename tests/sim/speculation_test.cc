// SPDX-License-Identifier: Apache-2.0
// Drafts change nothing but the number of steps: random requests on the fake model, whose logits
// are a hash of all state, with every kind of draft, in company and short of memory; and the parts
// that make drafts.
//
// More seeds: REPRISE_SIM_SEEDS=100000 build/dev/tests/speculation_test.
#include <cstdlib>

#include "choosing_executor.h"
#include "engine/audit/audit.h"
#include "engine/draft/ngram_index.h"
#include "fake_executor.h"
#include "speculation_fixture.h"

namespace reprise {
namespace {

[[maybe_unused]] const bool kQuiet = (SetLogLevel(LogLevel::kWarning), true);
constexpr FakeExecutor::Kind kKinds[] = {
    FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kRecurrent, FakeExecutor::Kind::kHybrid};
constexpr auto kVocab = static_cast<int32_t>(FakeExecutor::kVocab);

uint64_t Seeds(uint64_t otherwise) {
  const char* text = std::getenv("REPRISE_SIM_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// One in four is of a device that chooses tokens itself, half of them have a block for drafts.
std::unique_ptr<FakeExecutor> MakeExecutor(uint64_t seed) {
  const FakeExecutor::Kind kind = kKinds[seed % 3];
  std::unique_ptr<FakeExecutor> executor;
  if (seed / 4 % 4 == 3) {
    executor = std::make_unique<ChoosingExecutor>(kind);
  } else {
    executor = std::make_unique<FakeExecutor>(kind);
  }
  if (seed / 2 % 2 == 0) executor->PredictFurther();
  return executor;
}

TEST(Speculation, ChangesNoTokenAndNoState) {
  SpeculationTally tally;
  const uint64_t seeds = Seeds(400);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const std::unique_ptr<FakeExecutor> made = MakeExecutor(seed);
    FakeExecutor& executor = *made;
    const std::unique_ptr<FakeExecutor> small = MakeExecutor(seed / 3);
    const bool tight = seed % 4 == 1;
    const SpeculationCase one{.seed = seed,
                              .vocab = kVocab,
                              .prompt_max = tight ? 60 : 120,
                              .reply_max = tight ? 130 : 48,
                              .tight = tight,
                              .snapkv = seed % 5 == 2,
                              .draft = seed % 2 == 0 ? small.get() : nullptr};
    const std::string difference = CompareWorlds(executor, one, &tally);
    ASSERT_EQ(difference, "") << "seed " << seed;
  }
  EXPECT_GT(tally.run, seeds * 40);
  EXPECT_GT(tally.accepted, seeds * 10);
  EXPECT_GT(tally.run - tally.accepted, seeds * 10);
  EXPECT_GT(tally.by_source[size_t(Drafts::kTree)], seeds);
  EXPECT_GT(tally.by_source[size_t(Drafts::kPrediction)], seeds / 8);
  EXPECT_GT(tally.by_source[size_t(Drafts::kNgram)], seeds);
  EXPECT_GT(tally.by_source[size_t(Drafts::kMtp)], seeds);
  EXPECT_GT(tally.by_source[size_t(Drafts::kModel)], seeds);
  EXPECT_GT(tally.preemptions, seeds / 100);
  EXPECT_GT(tally.states, seeds);
}

TEST(Speculation, EveryScheduleGivesTheColdAnswer) {
  uint64_t run = 0, accepted = 0, preempted = 0;
  const uint64_t seeds = Seeds(400);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Schedule schedule = MakeSchedule(seed, {.speculate = true});
    const std::unique_ptr<FakeExecutor> made = MakeExecutor(seed);
    FakeExecutor& executor = *made;
    const ColdLogits cold = [&](uint32_t space, std::span<const TokenId> tokens, float* logits) {
      executor.ColdLogits(space, tokens, logits);
    };
    const AuditResult result = RunSchedule(schedule, executor, cold, 4);
    ASSERT_FALSE(result.difference)
        << "request " << result.difference->request << ", position " << result.difference->position
        << ": " << result.difference->text << "\n"
        << Describe(schedule);
    run += result.drafts;
    accepted += result.drafts_accepted;
    preempted += result.preemptions;
  }
  EXPECT_GT(preempted, seeds / 50);
  EXPECT_GT(accepted, seeds * 5);
  EXPECT_GT(run - accepted, seeds * 5);
}

// One request, with right drafts for a reply that is known.
class OneReply : public testing::Test {
 protected:
  GenerateRequest Request(int32_t tokens) const {
    return Conversation(kVocab).Say(1, 50).Request(tokens);
  }
  std::vector<TokenId> Answer(int32_t tokens) {
    return EngineFixture(executor_).Ask(Request(tokens)).tokens;
  }
  EngineOptions WithDrafts(int32_t window, uint32_t junk_percent = 0) {
    RehearsedDrafter::Options options;
    options.vocab_size = kVocab;
    options.junk_percent = junk_percent;
    const auto drafter = std::make_shared<RehearsedDrafter>(options);
    std::vector<TokenId> text = Request(1).prompt;
    for (const TokenId token : Answer(40)) text.push_back(token);
    drafter->Hear(text, Request(1).prompt.size());
    EngineOptions engine;
    engine.speculation = {Speculate::kAuto, window, {drafter}};
    return engine;
  }

  FakeExecutor executor_{FakeExecutor::Kind::kHybrid};
};

TEST_F(OneReply, NeedsFewerSteps) {
  EngineFixture fixture(executor_, {}, WithDrafts(4));
  const auto answer = fixture.Ask(Request(40));
  EXPECT_EQ(answer.tokens, Answer(40));
  // The prompt's, then five tokens a step.
  EXPECT_EQ(answer.completion.steps, 1 + (39 + 4) / 5);
  const DraftCount total = answer.completion.speculation.total();
  EXPECT_EQ(total.run, total.accepted);
  EXPECT_EQ(total.accepted, 39u - 8u);
  EXPECT_EQ(fixture.engine().stats().drafts[size_t(Drafts::kOther)].accepted, total.accepted);
  EXPECT_EQ(fixture.engine().stats().tokens_generated, 40u);
}

TEST_F(OneReply, RunsNoRowBehindItsLastToken) {
  EngineFixture fixture(executor_, {}, WithDrafts(16));
  const uint64_t before = executor_.rows();
  const auto answer = fixture.Ask(Request(6));
  EXPECT_EQ(answer.completion.steps, 2);
  EXPECT_EQ(executor_.rows() - before, 50u + 5u);
}

TEST_F(OneReply, IsOffWhereItIsSwitchedOff) {
  EngineFixture fixture(executor_, {}, WithDrafts(4));
  GenerateRequest request = Request(20);
  request.speculate = Speculate::kOff;
  const auto off = fixture.Ask(request);
  EXPECT_EQ(off.completion.steps, 20);
  EXPECT_EQ(off.completion.speculation.rest, DraftRest::kOff);
  // And the other way about, with what a later request finds in the tree.
  EngineFixture plain(executor_);
  (void)plain.Ask(Request(20));
  request.speculate = Speculate::kNgram;
  EXPECT_EQ(plain.Ask(request).completion.speculation.drafts[size_t(Drafts::kTree)].run, 0u);
}

// The tree has what another request was answered, but nothing of another tenant's.
TEST_F(OneReply, TheTreeKnowsOnlyItsNamespace) {
  for (const FakeExecutor::Kind kind : kKinds) {
    FakeExecutor executor(kind);
    EngineOptions engine;
    engine.speculation = {Speculate::kTree, 4, {}};
    EngineFixture fixture(executor, {}, engine);
    const auto first = fixture.Ask(Request(30));
    EXPECT_EQ(first.completion.speculation.total().run, 0u);
    const auto again = fixture.Ask(Request(30));
    EXPECT_EQ(again.tokens, first.tokens);
    EXPECT_LT(again.completion.steps, 12);
    EXPECT_GT(again.completion.speculation.drafts[size_t(Drafts::kTree)].accepted, 20u);
    GenerateRequest request = Request(30);
    request.salt = "somebody else";
    EXPECT_EQ(fixture.Ask(request).completion.speculation.total().run, 0u);
  }
}

TEST_F(OneReply, APredictionWithUnknownTokensIsCutThere) {
  GenerateRequest request = Request(20);
  request.speculate = Speculate::kTree;
  request.prediction = Answer(20);
  request.prediction[6] = kVocab;
  request.prediction[7] = -1;
  EngineOptions engine;
  engine.speculation.window = 8;
  EngineFixture fixture(executor_, {}, engine);
  EXPECT_EQ(fixture.Ask(request).tokens, Answer(20));
}

TEST_F(OneReply, WhoDoesNotReadGetsNothingFromTheTree) {
  EngineOptions engine;
  engine.speculation = {Speculate::kTree, 4, {}};
  EngineFixture fixture(executor_, {}, engine);
  (void)fixture.Ask(Request(30));
  GenerateRequest request = Request(30);
  request.cache_read = false;
  EXPECT_EQ(fixture.Ask(request).completion.speculation.total().run, 0u);
}

TEST_F(OneReply, APredictionIsFollowedAndTakenUpAgain) {
  EngineOptions engine;
  engine.speculation = {Speculate::kOff, 4, {}};
  const std::vector<TokenId> answer = Answer(40);
  GenerateRequest request = Request(40);
  request.speculate = Speculate::kTree;
  request.prediction = answer;
  request.prediction.erase(request.prediction.begin() + 10, request.prediction.begin() + 20);
  EngineFixture fixture(executor_, {}, engine);
  const auto predicted = fixture.Ask(request);
  EXPECT_EQ(predicted.tokens, answer);
  const DraftCount count = predicted.completion.speculation.drafts[size_t(Drafts::kPrediction)];
  EXPECT_GT(count.accepted, 15u);
  EXPECT_LT(predicted.completion.steps, 26);
}

// A block that says what the model would say is always right, if it is asked with the state, the
// places and the tokens of every sequence: alone, and with others whose runs end sooner.
TEST_F(OneReply, TheModelsOwnBlockIsAlwaysRight) {
  for (const FakeExecutor::Kind kind : kKinds) {
    for (const int32_t window : {1, 2, 5, 15}) {
      FakeExecutor executor(kind);
      const auto expected = EngineFixture(executor).Ask(Request(40)).tokens;
      executor.PredictFurther();
      EngineOptions engine;
      engine.speculation = {Speculate::kMtp, window, {}};
      EngineFixture fixture(executor, {}, engine);
      const auto answer = fixture.Ask(Request(40));
      EXPECT_EQ(answer.tokens, expected);
      EXPECT_EQ(answer.completion.steps, 1 + (39 + window) / (window + 1));
      const DraftCount count = answer.completion.speculation.drafts[size_t(Drafts::kMtp)];
      EXPECT_EQ(count.run, count.accepted);
      EXPECT_GT(count.run, 0u);
      // Replies of several lengths at once.
      std::vector<std::shared_ptr<TokenStream>> streams;
      for (int i = 0; i < 4; ++i) {
        GenerateRequest request =
            Conversation(kVocab).Say(uint64_t(i) + 7, 20 + i).Request(9 * i + 4);
        streams.push_back(fixture.Submit(std::move(request)));
      }
      while (fixture.engine().Step()) {
      }
      for (const auto& stream : streams) {
        const TokenStream::Update update = stream->Poll();
        ASSERT_TRUE(update.completion.has_value());
        const DraftCount one = update.completion->speculation.total();
        EXPECT_EQ(one.run, one.accepted);
        EXPECT_GT(one.run, 0u);
      }
    }
  }
}

// It has nothing to say to whoever asks another drafter, and a model without one says so.
TEST_F(OneReply, OnlyWhoAsksTheBlockHasItsDrafts) {
  EngineOptions engine;
  engine.speculation = {Speculate::kTree, 4, {}};
  executor_.PredictFurther();
  EngineFixture fixture(executor_, {}, engine);
  GenerateRequest request = Request(20);
  EXPECT_EQ(fixture.Ask(request).completion.speculation.total().run, 0u);
  request.speculate = Speculate::kAuto;
  request.prompt.push_back(1);  // nothing that the tree knows
  EXPECT_GT(fixture.Ask(request).completion.speculation.drafts[size_t(Drafts::kMtp)].run, 0u);
  FakeExecutor without(FakeExecutor::Kind::kHybrid);
  engine.speculation = {Speculate::kMtp, 4, {}};
  EngineFixture plain(without, {}, engine);
  EXPECT_EQ(plain.Ask(Request(20)).completion.speculation.rest, DraftRest::kNothing);
}

// Drafts that are there stay where one that would improve them is asked and has nothing to say.
TEST_F(OneReply, WhoHasNothingToSayTakesNothingAway) {
  class Silent : public Drafter {
   public:
    Drafts source() const override { return Drafts::kModel; }
    bool Serves(Speculate) const override { return true; }
    void Propose(std::span<DraftJob* const> jobs) override { asked_ += jobs.size(); }
    bool improves() const override { return true; }
    DraftGrade grade() const override { return DraftGrade::kTree; }
    size_t asked_ = 0;
  };
  GenerateRequest request = Request(40);
  request.prediction = Answer(40);
  // Wrong ones among them: from there on the other is asked, too.
  for (const size_t wrong : {6, 12, 18}) {
    request.prediction[wrong] = (request.prediction[wrong] + 1) % kVocab;
  }
  uint64_t accepted[2] = {};
  const auto silent = std::make_shared<Silent>();
  for (const bool with : {false, true}) {
    EngineOptions engine;
    engine.speculation = {Speculate::kAuto, 4, {}};
    if (with) engine.speculation.model = silent;
    EngineFixture fixture(executor_, {}, engine);
    const auto answer = fixture.Ask(request);
    accepted[with] = answer.completion.speculation.drafts[size_t(Drafts::kPrediction)].accepted;
  }
  EXPECT_GT(silent->asked_, 0u);
  EXPECT_GT(accepted[0], 15u);
  EXPECT_EQ(accepted[1], accepted[0]);
}

// A model that drafts for itself is always right: what it keeps of a sequence is the state of its
// tokens, after every number of drafts that were right, and the next turn goes on from it.
TEST_F(OneReply, AModelThatDraftsForItselfIsAlwaysRight) {
  for (const FakeExecutor::Kind kind : kKinds) {
    for (const int32_t window : {1, 2, 5, 15}) {
      FakeExecutor executor(kind), draft(kind);
      EngineOptions engine;
      engine.speculation = {Speculate::kDraft, window, {}};
      const ManualClock clock;
      const auto drafter = MakeModelDrafter(draft, clock);
      engine.speculation.model = drafter;
      EngineFixture fixture(executor, {}, engine);
      const auto answer = fixture.Ask(Request(40));
      EXPECT_EQ(answer.tokens, EngineFixture(executor).Ask(Request(40)).tokens);
      // The first drafts come with the end of the prompt, where a recurrent state is kept: one.
      const bool recurrent = kind != FakeExecutor::Kind::kAttention;
      const int32_t left = recurrent ? 39 - 2 : 39;
      EXPECT_EQ(answer.completion.steps, 1 + int(recurrent) + (left + window) / (window + 1));
      const DraftCount count = answer.completion.speculation.drafts[size_t(Drafts::kModel)];
      EXPECT_EQ(count.run, count.accepted);
      EXPECT_GT(count.run, 0u);
      // The next turn: nothing of prompt and reply is computed again, but what plain decoding
      // would compute, too.
      GenerateRequest next = Request(1);
      next.prompt.insert(next.prompt.end(), answer.tokens.begin(), answer.tokens.end());
      next.prompt.push_back(1);
      next.max_tokens = 3;
      const uint64_t before = draft.rows();
      const auto further = fixture.Ask(next);
      EXPECT_EQ(further.completion.speculation.total().run,
                further.completion.speculation.total().accepted);
      EXPECT_LT(draft.rows() - before, 32u);
      const uint64_t known = draft.rows();
      next.salt = "somebody else";
      (void)fixture.Ask(next);
      EXPECT_GE(draft.rows() - known, next.prompt.size());
      EXPECT_TRUE(drafter->cache().CheckInvariants().ok());
      EXPECT_EQ(drafter->cache().stats().bytes_leased, 0u);
    }
  }
}

// Wrong drafts leave nothing behind in the model that drafts either.
TEST_F(OneReply, AModelThatDraftsIsRightAgainBehindAWrongDraft) {
  for (const FakeExecutor::Kind kind : kKinds) {
    FakeExecutor executor(kind), draft(kind);
    EngineOptions engine;
    engine.speculation = {Speculate::kDraft, 4, {}};
    const ManualClock clock;
    engine.speculation.model = MakeModelDrafter(draft, clock);
    EngineFixture fixture(executor, {}, engine);
    GenerateRequest request = Request(60);
    request.sampling.temperature = 1;  // a draft is the likeliest token, this is any
    request.sampling.seed = 5;
    request.sampling.logit_bias = {{3, 4.0f}};
    const auto answer = fixture.Ask(request);
    request.speculate = Speculate::kOff;
    request.salt = "elsewhere";
    EXPECT_EQ(answer.tokens.size(), 60u);
    const DraftCount first = answer.completion.speculation.total();
    EXPECT_LT(first.accepted, first.run);
    // The same prompt and reply, then the likeliest tokens: all drafts are right.
    GenerateRequest next = Request(1);
    next.prompt.insert(next.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    next.max_tokens = 20;
    const auto further = fixture.Ask(next);
    const DraftCount second = further.completion.speculation.total();
    EXPECT_EQ(second.run, second.accepted);
    EXPECT_GT(second.run, 10u);
  }
}

// A token that the small model does not have ends its drafts, and nothing else.
TEST_F(OneReply, AModelThatDraftsMayKnowFewerTokens) {
  class Smaller : public FakeExecutor {
   public:
    Smaller() : FakeExecutor(Kind::kAttention) { card_.vocab_size = 8; }
    const ModelCard& card() const override { return card_; }
    Status Forward(const BatchView& batch, const StateMemory&, float* logits) override {
      for (const TokenId token : batch.tokens) EXPECT_LT(token, 8);
      for (uint8_t& finite : batch.finite) finite = 1;
      std::fill(logits, logits + batch.logit_rows.size() * 8, 0.0f);
      return OkStatus();
    }

   private:
    ModelCard card_ = FakeExecutor::card();
  };
  Smaller draft;
  const ManualClock clock;
  EngineOptions engine;
  engine.speculation = {Speculate::kDraft, 4, {}};
  engine.speculation.model = MakeModelDrafter(draft, clock);
  EngineFixture fixture(executor_, {}, engine);
  GenerateRequest request = Request(20);
  EXPECT_EQ(fixture.Ask(request).tokens, Answer(20));
  request.prompt.assign(40, 3);
  EXPECT_EQ(fixture.Ask(request).tokens, EngineFixture(executor_).Ask(request).tokens);
}

// A model that takes its time: so much for a step, and more for each row.
class TimedExecutor : public FakeExecutor {
 public:
  TimedExecutor(double step_ms, double row_ms)
      : FakeExecutor(Kind::kHybrid), step_ms_(step_ms), row_ms_(row_ms) {}
  void set_clock(ManualClock* clock) { clock_ = clock; }

  Status Forward(const BatchView& batch, const StateMemory& memory, float* logits) override {
    const double ms = step_ms_ + row_ms_ * static_cast<double>(batch.tokens.size());
    if (clock_ != nullptr) clock_->AdvanceNs(static_cast<int64_t>(1e6 * ms));
    return FakeExecutor::Forward(batch, memory, logits);
  }

 private:
  const double step_ms_;
  const double row_ms_;
  ManualClock* clock_ = nullptr;
};

// How many drafts there are follows what comes true, and what rows cost.
TEST_F(OneReply, TheWindowFollowsWhatComesTrueAndWhatItCosts) {
  const auto ask = [&](double step_ms, double row_ms, uint32_t junk_percent) {
    TimedExecutor executor(step_ms, row_ms);
    EngineFixture fixture(executor, {}, WithDrafts(0, junk_percent));
    executor.set_clock(&fixture.clock());
    const auto answer = fixture.Ask(Request(40));
    EXPECT_EQ(answer.tokens, Answer(40));
    return answer.completion;
  };
  EXPECT_LE(ask(10, 0.1, 0).steps, 10) << "as many as there may be, soon";
  EXPECT_LE(ask(0, 10, 0).speculation.total().run, 2u) << "those that find out";
  EXPECT_EQ(ask(0, 10, 0).speculation.rest, DraftRest::kCost);
  const Completion junk = ask(10, 1, 100);
  EXPECT_GE(junk.steps, 36);
  EXPECT_LE(junk.speculation.total().run, 24u);
}

// A state that is not finite behind a wrong draft fails nobody: the request goes on without.
TEST_F(OneReply, ASpoiltDraftIsForgotten) {
  GenerateRequest request = Conversation(kVocab).Say(1, 3).Request(8);
  const std::vector<TokenId> answer = EngineFixture(executor_).Ask(request).tokens;
  std::vector<TokenId> unsaid;
  for (TokenId token = 0; token < kVocab; ++token) {
    if (std::count(answer.begin(), answer.end(), token) == 0 &&
        std::count(request.prompt.begin(), request.prompt.end(), token) == 0) {
      unsaid.push_back(token);
    }
  }
  ASSERT_FALSE(unsaid.empty());
  executor_.PoisonToken(unsaid[0]);
  request.speculate = Speculate::kTree;
  request.prediction = {answer[0], answer[1], answer[2], unsaid[0], answer[4]};
  EngineOptions engine;
  engine.speculation.window = 3;
  EngineFixture fixture(executor_, {}, engine);
  const auto spoilt = fixture.Ask(request);
  EXPECT_EQ(spoilt.tokens, answer);
  EXPECT_EQ(spoilt.completion.reason, FinishReason::kLength);
  EXPECT_EQ(spoilt.completion.speculation.rest, DraftRest::kSpoilt);
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

// A step that fails with drafts in it is tried again with less; nothing of it stays.
TEST_F(OneReply, AStepThatFailsIsTriedAgain) {
  const std::vector<TokenId> answer = Answer(40);
  for (const Status& failure : {ResourceExhausted("no memory"), DataLoss("lost")}) {
    EngineFixture fixture(executor_, {}, WithDrafts(4));
    executor_.FailStep(4, failure);
    EXPECT_EQ(fixture.Ask(Request(40)).tokens, answer);
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
  }
}

// The device is told how to choose behind every draft, before the step: it is asked once a step.
TEST_F(OneReply, ADeviceThatChoosesDoesSoBehindEveryDraft) {
  ChoosingExecutor executor(FakeExecutor::Kind::kHybrid);
  EngineFixture fixture(executor, {}, WithDrafts(4));
  const auto answer = fixture.Ask(Request(40));
  EXPECT_EQ(answer.tokens, Answer(40));
  EXPECT_EQ(answer.completion.steps, 1 + (39 + 4) / 5);
  const DraftCount total = answer.completion.speculation.total();
  EXPECT_EQ(total.accepted, total.run);
  EXPECT_EQ(executor.begun(), answer.completion.steps);
  EXPECT_EQ(executor.told_begun(), answer.completion.steps);
}

// It is told what a constraint lets come behind every draft, so it takes the steps of a host that
// asks for one mask after another; what must follow, and where ends may come, included.
TEST_F(OneReply, ADeviceThatChoosesKnowsTheConstraintBehindEveryDraft) {
  for (const int logprobs : {-1, 2}) {
    for (const int32_t least : {0, 30}) {
      const auto ask = [&](Executor& executor, const EngineOptions& engine) {
        GenerateRequest request = Request(40);
        request.constraint = std::make_shared<Verses>(kVocab);
        request.logprobs = logprobs;
        request.sampling.temperature = 0.7f;
        request.sampling.frequency_penalty = 0.3f;
        request.min_tokens = least;
        if (least > 0) request.end_tokens = {5, 11};
        return EngineFixture(executor, {}, engine).Ask(std::move(request));
      };
      const auto plain = ask(executor_, {});
      const auto drafter = std::make_shared<RehearsedDrafter>(
          RehearsedDrafter::Options{.vocab_size = kVocab, .junk_percent = 0});
      std::vector<TokenId> text = Request(1).prompt;
      text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
      drafter->Hear(text, Request(1).prompt.size());
      EngineOptions engine;
      engine.speculation = {Speculate::kAuto, 4, {drafter}};
      ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
      const auto on_host = ask(executor_, engine);
      const auto on_device = ask(device, engine);
      EXPECT_EQ(on_host.tokens, plain.tokens);
      EXPECT_EQ(on_device.tokens, plain.tokens);
      EXPECT_EQ(on_device.completion.steps, on_host.completion.steps);
      EXPECT_LT(4 * on_device.completion.steps, 3 * plain.completion.steps);
    }
  }
}

// Against a search through all of the text.
TEST(NgramIndex, FindsTheLatestRun) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    const size_t n = 1 + rng.Below(5);
    std::vector<TokenId> text;
    NgramIndex index(n);
    for (int i = 0; i < 300; ++i) {
      text.push_back(TokenId(rng.Below(1 + seed)));
      index.Extend(text, text.size() - 1);
      size_t expected = 0;
      for (size_t end = n; end < text.size(); ++end) {
        if (std::equal(text.end() - ptrdiff_t(std::min(n, text.size())), text.end(),
                       text.begin() + ptrdiff_t(end - n))) {
          expected = end;
        }
      }
      const auto found = index.Find(text, text);
      ASSERT_EQ(found.value_or(0), text.size() > n ? expected : 0) << "seed " << seed;
    }
  }
}

TEST(NgramIndex, StaysBoundedInALongText) {
  std::vector<TokenId> text;
  Rng rng(1);
  for (size_t i = 0; i < NgramIndex::kPlacesMax + 1000; ++i) {
    text.push_back(TokenId(rng.Below(100000)));
  }
  NgramIndex index(3);
  index.Extend(text, text.size());
  EXPECT_EQ(index.indexed(), text.size());
  const auto found = index.Find(text, text);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, text.size());
}

}  // namespace
}  // namespace reprise
