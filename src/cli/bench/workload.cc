// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/workload.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"

namespace reprise::cli {
namespace {

// Adds `turns` exchanges of one conversation; returns its index.
int32_t AddConversation(Workload* workload, int32_t system_tokens, uint64_t system_seed) {
  workload->system_tokens.push_back(system_tokens);
  workload->system_seed.push_back(system_seed);
  return static_cast<int32_t>(workload->system_tokens.size()) - 1;
}

void AddTurn(Workload* workload, int32_t conversation, int32_t message, int32_t reply) {
  workload->turns.push_back({conversation, message, reply, 1000 + workload->turns.size()});
}

void AddChat(Workload* workload, int conversations, int turns) {
  for (int c = 0; c < conversations; ++c) {
    const int32_t chat = AddConversation(workload, 200, 1);
    for (int turn = 0; turn < turns; ++turn) AddTurn(workload, chat, 30, 30);
  }
}

void AddRag(Workload* workload, int questions) {
  for (int q = 0; q < questions; ++q) {
    AddTurn(workload, AddConversation(workload, 1000, 2), 30, 20);
  }
}

void AddBatch(Workload* workload, int inputs) {
  for (int i = 0; i < inputs; ++i) AddTurn(workload, AddConversation(workload, 50, 3), 20, 1);
}

void AddAgent(Workload* workload, int calls) {
  const int32_t agent = AddConversation(workload, 1000, 4);
  for (int call = 0; call < calls; ++call) AddTurn(workload, agent, 80, 30);
}

struct Live {
  std::vector<TokenId> history;
  std::vector<Boundary> boundaries;
};

void Append(Live* live, uint64_t seed, int32_t count, int64_t vocab, BoundaryKind kind) {
  Rng rng(seed);
  for (int32_t i = 0; i < count; ++i) {
    live->history.push_back(static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab))));
  }
  live->boundaries.push_back({static_cast<int32_t>(live->history.size()), kind});
}

Status Note(TokenStream* stream, Live* live, WorkloadRun* run) {
  TokenStream::Update update = stream->WaitForAll();
  const Completion& completion = *update.completion;
  REPRISE_TRY(completion.status);
  for (const GeneratedToken& token : update.tokens) live->history.push_back(token.chosen.token);
  live->boundaries.push_back({static_cast<int32_t>(live->history.size()), BoundaryKind::kMessage});
  run->Add(completion);
  return OkStatus();
}

}  // namespace

void WorkloadRun::Add(const Completion& completion) {
  first_token_ms.push_back(completion.first_token_ms);
  prompt_tokens += static_cast<uint64_t>(completion.prompt_tokens);
  reused_tokens += static_cast<uint64_t>(completion.report.used_tokens);
  generated_tokens += static_cast<uint64_t>(completion.generated_tokens);
}

Result<Workload> MakeWorkload(std::string_view name) {
  Workload workload;
  workload.name = name;
  if (name == "chat") {
    AddChat(&workload, 3, 4);
  } else if (name == "rag") {
    AddRag(&workload, 8);
  } else if (name == "batch") {
    AddBatch(&workload, 100);
    workload.concurrent = true;
  } else if (name == "agent") {
    AddAgent(&workload, 8);
  } else if (name == "mixed") {
    AddChat(&workload, 2, 3);
    AddRag(&workload, 3);
    AddAgent(&workload, 3);
    AddBatch(&workload, 20);
  } else {
    return NotFound("there is no workload called " + std::string(name));
  }
  return workload;
}

Result<WorkloadRun> RunWorkload(const Workload& workload, Executor& executor,
                                const CacheOptions& cache_options) {
  REPRISE_ASSIGN(auto cache,
                 StateCache::Create(executor.card().state, cache_options, executor.memory()));
  EngineOptions options;
  options.context_tokens = cache_options.context_tokens;
  options.running_max = cache_options.sequence_count;
  options.waiting_max = static_cast<int32_t>(workload.turns.size()) + 1;
  const SteadyClock clock;
  Engine engine(executor, std::move(cache), options, clock);
  engine.Start();

  const int64_t vocab = executor.card().vocab_size;
  std::vector<Live> conversations(workload.system_tokens.size());
  for (size_t c = 0; c < conversations.size(); ++c) {
    Append(&conversations[c], workload.system_seed[c], workload.system_tokens[c], vocab,
           BoundaryKind::kSystem);
  }
  WorkloadRun run;
  const int64_t begin_ns = clock.NowNs();
  std::vector<std::pair<std::shared_ptr<TokenStream>, Live*>> open;
  for (const WorkloadTurn& turn : workload.turns) {
    Live& live = conversations[static_cast<size_t>(turn.conversation)];
    Append(&live, turn.message_seed, turn.message_tokens, vocab, BoundaryKind::kMessage);
    GenerateRequest request;
    request.prompt = live.history;
    request.boundaries = live.boundaries;
    request.sampling.temperature = 0;
    request.max_tokens = turn.reply_tokens;
    REPRISE_ASSIGN(std::shared_ptr<TokenStream> stream, engine.Submit(std::move(request)));
    if (workload.concurrent) {
      open.emplace_back(std::move(stream), &live);
    } else {
      REPRISE_TRY(Note(stream.get(), &live, &run));
    }
  }
  for (const auto& [stream, live] : open) REPRISE_TRY(Note(stream.get(), live, &run));
  run.seconds = static_cast<double>(clock.NowNs() - begin_ns) / 1e9;
  engine.Stop();
  run.cache_bytes = engine.cache().stats().bytes_cached;
  return run;
}

}  // namespace reprise::cli
