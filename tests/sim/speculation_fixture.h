// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/raw.h"
#include "engine/audit/rehearsed_drafter.h"
#include "engine/draft/model_drafter.h"
#include "engine_fixture.h"
#include "model/live_state.h"

// Random requests that are answered with and without drafts: what both say must be the same, and
// what both leave behind.
namespace reprise {

// Some tokens may come, others may not, which changes with every token; and three must come after
// every fourth that was free.
class Verses final : public TokenConstraint {
 public:
  explicit Verses(int32_t vocab) : vocab_(vocab) {}

  Status Fill(TokenMask* allowed) override {
    allowed->Clear();
    for (int32_t token = 0; token < vocab_; ++token) {
      if ((token + said_) % 3 != 0) allowed->Allow(token);
    }
    return OkStatus();
  }
  Status Accept(int32_t token) override {
    if ((token + said_) % 3 == 0) return InvalidArgument("this token may not come now");
    ++said_;
    return OkStatus();
  }
  void Force(std::vector<int32_t>* tokens) override {
    if (said_ % 4 != 3) return;
    for (int32_t i = 0; i < 3; ++i) tokens->push_back((said_ + 5 * i) % vocab_);
    ++said_;
  }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<Verses>(*this);
  }

 private:
  int32_t vocab_;
  int32_t said_ = 0;
};

struct SpeculationCase {
  uint64_t seed = 0;
  int32_t vocab = 0;
  int32_t prompt_max = 120;
  int32_t reply_max = 48;
  bool tight = false;  // memory for hardly more than one
  bool snapkv = false;
  int junk_percent = -1;      // of drafts that know the answers; -1: any, or no such drafts
  Executor* draft = nullptr;  // a model that drafts, too
};

// A drafter that runs `executor`, for sequences of a world.
inline std::shared_ptr<ModelDrafter> MakeModelDrafter(Executor& executor, const Clock& clock,
                                                      int32_t snapshot_gap = 16) {
  CacheOptions cache;
  cache.context_tokens = 256;
  cache.sequence_count = 4;
  cache.snapshot_gap = snapshot_gap;
  cache.budget_bytes = LeastBudget(executor.card().state, cache) * 5 / 2;
  auto drafter = ModelDrafter::Create(executor, cache, clock);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return *drafter;
}

struct Reply {
  std::vector<GeneratedToken> tokens;
  FinishReason reason = FinishReason::kFailed;
  int32_t generated = 0;
  int32_t preemptions = 0;
  SpeculationReport speculation;

  std::vector<TokenId> ids() const {
    std::vector<TokenId> all;
    for (const GeneratedToken& token : tokens) all.push_back(token.chosen.token);
    return all;
  }
};

struct LaterState {
  int32_t position = 0;          // where a later request starts from
  std::vector<std::byte> bytes;  // of its recurrent state there
  std::vector<float> logits;     // that it computes behind that
  std::vector<float> guess;      // of the model's block for further tokens, if it has one
};

// What the model's block for further tokens says behind `token`, of a sequence as it stands.
inline std::vector<float> GuessBehind(Executor& executor, const StateMemory& memory,
                                      SequenceSlice slice, TokenId token) {
  slice.row_count = 1;
  const uint32_t row = 0;
  uint8_t finite = 0;
  std::vector<float> hidden(size_t(executor.card().dim));
  std::vector<float> logits(size_t(executor.card().vocab_size));
  const Status said = executor.Predict(
      {std::span(&token, 1), std::span(&slice, 1), std::span(&row, 1), std::span(&finite, 1)},
      memory, /*first=*/true, hidden, logits);
  EXPECT_TRUE(said.ok() && finite == 1) << said.message();
  return logits;
}

// The same of a sequence that ran all tokens but the last at once, from nothing.
inline std::vector<float> ColdGuess(Executor& executor, std::span<const TokenId> tokens) {
  auto state = LiveState::Create(executor.card().state, 1, 256, executor.memory());
  CHECK(state.ok());
  const auto before = tokens.first(tokens.size() - 1);
  if (!before.empty()) {
    const SequenceSlice slice = state->Next(0, 0, uint32_t(before.size()));
    uint8_t finite = 0;
    CHECK(executor
              .Forward({before, std::span(&slice, 1), {}, std::span(&finite, 1)}, state->memory(),
                       nullptr)
              .ok());
    state->Advance(0, int64_t(before.size()));
  }
  return GuessBehind(executor, state->memory(), state->Next(0, 0, 1), tokens.back());
}

class SpeculationWorld {
 public:
  SpeculationWorld(Executor& executor, const SpeculationCase& one, SpeculationOptions options)
      : executor_(executor), one_(one) {
    Rng rng(one.seed * 3 + 1);
    CacheOptions cache;
    cache.context_tokens = 256;
    cache.sequence_count = 4;
    cache.snapshot_gap = 1 + int32_t(rng.Below(40));
    const StateSpec& spec = executor.card().state;
    if (one.tight) {
      const size_t sequence = 5 * spec.kv_block_bytes() + spec.state_bytes();
      cache.budget_bytes = LeastBudget(spec, cache) + sequence * rng.Below(12) / 10;
    }
    EngineOptions engine;
    engine.running_max = 4;
    engine.scheduler.rows_max = rng.Below(3) == 0 ? 24 : 64;
    engine.speculation = std::move(options);
    if (one.draft != nullptr && engine.speculation.mode != Speculate::kOff) {
      drafter_ = MakeModelDrafter(*one.draft, steady_, 1 + int32_t(one.seed % 40));
      engine.speculation.model = drafter_;
    }
    fixture_ = std::make_unique<EngineFixture>(executor, cache, engine);
    const size_t count = 1 + rng.Below(5);
    for (size_t i = 0; i < count; ++i) arrivals_.push_back(int(rng.Below(i == 0 ? 1 : 40)));
    std::sort(arrivals_.begin(), arrivals_.end());
  }

  std::vector<Reply> Run() {
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (int step = 0; step < 20000; ++step) {
      while (streams.size() < arrivals_.size() && arrivals_[streams.size()] <= step) {
        streams.push_back(fixture_->Submit(RequestOf(streams.size())));
      }
      const bool worked = fixture_->engine().Step();
      fixture_->clock().AdvanceMs(1);
      if (!worked && streams.size() == arrivals_.size()) break;
    }
    const Status balanced = fixture_->cache().CheckInvariants();
    EXPECT_TRUE(balanced.ok()) << balanced.message();
    if (drafter_) {
      const Status drafted = drafter_->cache().CheckInvariants();
      EXPECT_TRUE(drafted.ok()) << drafted.message();
      EXPECT_EQ(drafter_->cache().stats().bytes_leased, 0u);
    }
    std::vector<Reply> replies;
    for (const auto& stream : streams) {
      TokenStream::Update update = stream->Poll();
      EXPECT_TRUE(update.completion.has_value());
      if (!update.completion) continue;
      EXPECT_NE(update.completion->reason, FinishReason::kFailed)
          << update.completion->status.message();
      replies.push_back({std::move(update.tokens), update.completion->reason,
                         update.completion->generated_tokens, update.completion->preemptions,
                         update.completion->speculation});
    }
    return replies;
  }

  // What a later request finds that goes on behind a reply.
  LaterState After(size_t index, const Reply& reply) {
    std::vector<TokenId> text = RequestOf(index).prompt;
    const std::vector<TokenId> said = reply.ids();
    text.insert(text.end(), said.begin(), said.end());
    text.push_back(1);
    LaterState later;
    {
      const NamespaceKey key{executor_.card().digest, ""};
      CacheRequest wanted;
      wanted.key = &key;
      wanted.tokens = text;
      StateCache& cache = fixture_->cache();
      Lease lease = cache.Acquire(wanted);
      EXPECT_TRUE(cache.Start(lease).ready());
      later.position = lease.computed();
      const size_t bytes = cache.memory().layout->state_bytes();
      if (lease.state().valid()) {
        const std::byte* state = Raw(cache.memory().state(lease.state()));
        later.bytes.assign(state, state + bytes);
      }
      if (executor_.card().mtp_state) {
        EXPECT_TRUE(cache.Reserve(lease, 1).ok());
        SequenceSlice slice;
        slice.past = lease.extent();
        slice.blocks = lease.blocks();
        slice.state = lease.state();
        const auto known = std::span(text).first(size_t(later.position) + 1);
        later.guess = GuessBehind(executor_, cache.memory(), slice, known.back());
        const bool cold = slice.past.logical == slice.past.physical;
        if (cold && later.guess != ColdGuess(executor_, known)) later.guess.clear();
      }
    }
    GenerateRequest request;
    request.prompt = text;
    request.on_logits = [&](int32_t, std::span<const float> logits) {
      later.logits.insert(later.logits.end(), logits.begin(), logits.end());
    };
    (void)fixture_->Ask(std::move(request));
    return later;
  }

  size_t count() const { return arrivals_.size(); }

  // The same for every world of a case.
  GenerateRequest RequestOf(size_t index) const {
    Rng rng(one_.seed * 1000 + index);
    const auto vocab = uint64_t(one_.vocab);
    GenerateRequest request;
    // Few beginnings, so that requests share them, and some that say the same again and again.
    Rng words(one_.seed + rng.Below(2));
    const size_t length = 1 + rng.Below(uint64_t(one_.prompt_max));
    const uint64_t period = rng.Below(2) == 0 ? length : 1 + rng.Below(9);
    for (size_t i = 0; i < length; ++i) {
      request.prompt.push_back(i < period ? TokenId(words.Below(vocab))
                                          : request.prompt[i - period]);
    }
    request.boundaries = {{int32_t(length), BoundaryKind::kMessage}};
    request.max_tokens = 1 + int32_t(rng.Below(uint64_t(one_.reply_max)));
    SamplingParams& sampling = request.sampling;
    const float temperatures[] = {0, 0.7f, 1.5f};
    sampling.temperature = temperatures[rng.Below(3)];
    sampling.seed = rng.Below(1000);
    if (rng.Below(4) == 0) sampling.top_k = 1 + int32_t(rng.Below(8));
    if (rng.Below(4) == 0) sampling.top_p = 0.8f;
    if (rng.Below(3) == 0) sampling.repetition_penalty = 1.3f;
    if (rng.Below(3) == 0) sampling.frequency_penalty = 0.5f;
    if (rng.Below(4) == 0) sampling.presence_penalty = 0.7f;
    if (rng.Below(4) == 0) sampling.logit_bias = {{2, 1.5f}};
    if (rng.Below(3) == 0) request.constraint = std::make_shared<Verses>(one_.vocab);
    if (rng.Below(3) == 0) {
      request.end_tokens = {TokenId(rng.Below(vocab)), TokenId(rng.Below(vocab))};
      request.min_tokens = int32_t(rng.Below(12));
    }
    if (rng.Below(3) == 0) request.logprobs = int(rng.Below(4));
    if (rng.Below(5) == 0) request.on_logits = [](int32_t, std::span<const float>) {};
    if (one_.snapkv && executor_.keeps() && rng.Below(2) == 0) {
      SnapKv snapkv{.budget = 1 + int32_t(rng.Below(60))};
      snapkv.window = 1 + int32_t(rng.Below(8));
      if (CheckSnapKv(executor_.card().state, snapkv).ok()) request.snapkv = snapkv;
    }
    if (rng.Below(4) == 0) {
      for (int i = 0; i < 20; ++i) request.prediction.push_back(TokenId(rng.Below(vocab)));
    }
    return request;
  }

 private:
  Executor& executor_;
  const SpeculationCase one_;
  std::vector<int> arrivals_;
  const SteadyClock steady_;
  std::shared_ptr<ModelDrafter> drafter_;  // or null
  std::unique_ptr<EngineFixture> fixture_;
};

inline bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// One sentence about the first thing that drafts have changed; empty: nothing.
inline std::string DifferenceOf(const Reply& plain, const Reply& drafted) {
  if (plain.ids() != drafted.ids()) return "tokens differ";
  if (plain.reason != drafted.reason) return "one of them ends for another reason";
  if (plain.generated != drafted.generated) return "one of them counts other tokens";
  for (size_t i = 0; i < plain.tokens.size(); ++i) {
    const GeneratedToken& a = plain.tokens[i];
    const GeneratedToken& b = drafted.tokens[i];
    if (!SameBits(a.chosen.logprob, b.chosen.logprob)) return "a log probability differs";
    if (a.top.size() != b.top.size()) return "a list of likely tokens is shorter";
    for (size_t t = 0; t < a.top.size(); ++t) {
      if (a.top[t].token != b.top[t].token || !SameBits(a.top[t].logprob, b.top[t].logprob)) {
        return "a likely token differs";
      }
    }
  }
  return "";
}

struct SpeculationTally {
  uint64_t run = 0;
  uint64_t accepted = 0;
  uint64_t by_source[kDraftsCount] = {};
  uint64_t preemptions = 0;
  uint64_t states = 0;  // that were compared
};

// Answers the requests of the case plainly, then with drafts of every kind. Drafters that are given
// are asked first; `junk` percent of what they say is made up.
inline std::string CompareWorlds(Executor& executor, const SpeculationCase& one,
                                 SpeculationTally* tally) {
  Rng rng(one.seed + 77);
  SpeculationWorld plain(executor, one, {});
  const std::vector<Reply> expected = plain.Run();
  RehearsedDrafter::Options drafts;
  drafts.seed = one.seed;
  drafts.vocab_size = one.vocab;
  drafts.silent_percent = rng.Below(2) == 0 ? 0 : 50;
  const uint32_t junk[] = {0, 0, 5, 30, 100};
  drafts.junk_percent = junk[rng.Below(5)];
  if (one.junk_percent >= 0) drafts.junk_percent = uint32_t(one.junk_percent);
  const auto drafter = std::make_shared<RehearsedDrafter>(drafts);
  for (size_t i = 0; i < expected.size(); ++i) {
    std::vector<TokenId> text = plain.RequestOf(i).prompt;
    const size_t prompt = text.size();
    const std::vector<TokenId> said = expected[i].ids();
    text.insert(text.end(), said.begin(), said.end());
    drafter->Hear(std::move(text), prompt);
  }
  SpeculationOptions options;
  options.mode = Speculate::kAuto;
  options.window = 1 + int32_t(rng.Below(16));
  if (rng.Below(5) != 0 || one.junk_percent >= 0) options.drafters = {drafter};
  SpeculationWorld drafted(executor, one, options);
  // Twice: the second time the tree knows what was answered.
  for (int round = 0; round < 2; ++round) {
    const std::vector<Reply> actual = drafted.Run();
    if (actual.size() != expected.size()) return "a request has not ended";
    for (size_t i = 0; i < actual.size(); ++i) {
      const std::string difference = DifferenceOf(expected[i], actual[i]);
      if (!difference.empty()) return difference + ", of request " + std::to_string(i);
      tally->run += actual[i].speculation.total().run;
      tally->accepted += actual[i].speculation.total().accepted;
      for (size_t s = 0; s < kDraftsCount; ++s) {
        tally->by_source[s] += actual[i].speculation.drafts[s].run;
      }
      tally->preemptions += uint64_t(actual[i].preemptions);
    }
  }
  if (one.tight) return "";
  for (size_t i = 0; i < expected.size(); ++i) {
    const LaterState a = plain.After(i, expected[i]);
    const LaterState b = drafted.After(i, expected[i]);
    const size_t vocab = size_t(one.vocab);
    // Where company has made one of them leave more, only what both compute is compared.
    const size_t both = std::min(a.logits.size(), b.logits.size()) / vocab * vocab;
    if (both == 0 ||
        std::memcmp(a.logits.data() + a.logits.size() - both,
                    b.logits.data() + b.logits.size() - both, both * sizeof(float)) != 0) {
      return "a logit behind the stored state differs, of request " + std::to_string(i);
    }
    if (a.position != b.position) continue;
    ++tally->states;
    if (a.bytes != b.bytes) return "the stored state differs, of request " + std::to_string(i);
    if (!executor.card().mtp_state) continue;
    if (a.guess.empty() || a.guess != b.guess) {
      return "a guess behind the stored state differs, of request " + std::to_string(i);
    }
  }
  return "";
}

}  // namespace reprise
