// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/chat/conversation.h"
#include "cli/loaded_model.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "model/executor.h"
#include "model/model_text.h"
#include "text/detokenizer.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

constexpr int kContextDefault = 8192;

struct Options {
  ModelOptions model;
  std::string prompt;
  std::string system;
  std::string tokenizer;
  GenerationDefaults chosen;  // on the command line; what is absent is for the model to say
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  int max_tokens = 1024;
  bool plain = false;
  bool stats = false;
};

volatile sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

// Ctrl-C stops what is being generated; reading a line ends with it, too.
void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

// The engine with one user.
class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(LoadedModel* loaded, const Options& options);

  // Prints the reply as it comes and returns it. Stops early on Ctrl-C.
  Result<std::string> Answer(GenerateRequest request);

  // The next prompt will begin with `tokens`: computes them while the user thinks, or, with `wait`,
  // now.
  void Prepare(std::vector<TokenId> tokens, bool wait);

  // What was reused, and what is stored.
  std::string DescribeCache();

  const ModelText& text() const { return text_; }
  int32_t context_tokens() const { return engine_->context_tokens(); }

 private:
  Session(LoadedModel* loaded, const Options& options, ModelText text)
      : options_(options), text_(std::move(text)), executor_(loaded->model(), loaded->context()) {}
  void PrintStats(const Completion& completion) const;

  // Prompts and what became of them: of the last turn, or of all.
  struct Reuse {
    int64_t turns = 0;
    int64_t prompt_tokens = 0;
    int64_t used_tokens = 0;
    int64_t new_tokens = 0;  // that no earlier turn had
    std::string Describe() const;
  };

  const Options& options_;
  ModelText text_;
  ModelExecutor executor_;
  SteadyClock clock_;
  std::vector<TokenId> history_;  // what the next prompt begins with
  Reuse last_, all_;
  std::unique_ptr<Engine> engine_;
};

Result<std::unique_ptr<Session>> Session::Create(LoadedModel* loaded, const Options& options) {
  auto text = options.tokenizer.empty() ? ReadModelText(loaded->checkpoint())
                                        : ReadTextFile(options.tokenizer);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound && options.tokenizer.empty()) {
    return text.status().Annotate("give one with --tokenizer");
  }
  if (!text.ok()) return text.status();
  const ModelCard& card = loaded->model().card();
  if (text->tokenizer->vocab_size() > card.vocab_size) {
    return InvalidArgument("the tokenizer has " + std::to_string(text->tokenizer->vocab_size()) +
                           " tokens, the model only " + std::to_string(card.vocab_size));
  }
  std::unique_ptr<Session> session(new Session(loaded, options, std::move(*text)));
  CacheOptions cache;
  cache.sequence_count = 2;
  cache.snapshot_gap = 1;  // short turns count, and one user leaves few
  cache.context_tokens = int32_t(card.context_length);
  DeviceMemory& memory = loaded->backend().memory();
  cache.budget_bytes = DefaultBudget(card.state, FindAvailableMemory(memory).bytes, cache);
  REPRISE_ASSIGN(std::unique_ptr<StateCache> state, StateCache::Create(card.state, cache, memory));
  EngineOptions engine;
  engine.context_tokens = cache.context_tokens;
  engine.running_max = cache.sequence_count;
  session->engine_ =
      std::make_unique<Engine>(session->executor_, std::move(state), engine, session->clock_);
  session->engine_->Start();
  return session;
}

Result<std::string> Session::Answer(GenerateRequest request) {
  request.sampling = options_.sampling;
  request.end_tokens = text_.tokenizer->eos_ids();
  const int64_t room = int64_t{context_tokens()} - int64_t(request.prompt.size());
  if (room < 1) {
    return ResourceExhausted("the conversation has " + std::to_string(request.prompt.size()) +
                             " tokens and the context only " + std::to_string(context_tokens()) +
                             ": start anew with /reset, or give more with --context");
  }
  request.max_tokens = int32_t(std::min<int64_t>(options_.max_tokens, room));
  const auto parts =
      std::mismatch(request.prompt.begin(), request.prompt.end(), history_.begin(), history_.end());
  const int64_t new_tokens = request.prompt.end() - parts.first;
  REPRISE_ASSIGN(const std::shared_ptr<TokenStream> stream, engine_->Submit(std::move(request)));
  Detokenizer detokenizer(*text_.tokenizer, {false, false});
  std::string reply;
  size_t printed = 0;
  const auto print = [&] {
    WriteText(std::string_view(reply).substr(printed));
    printed = reply.size();
  };
  for (;;) {
    if (interrupted != 0) stream->Cancel();
    const TokenStream::Update update = stream->Poll();
    for (const GeneratedToken& token : update.tokens) {
      if (!text_.tokenizer->IsEos(token.chosen.token)) {
        detokenizer.Append(token.chosen.token, &reply);
      }
    }
    print();
    if (!update.completion) {
      std::this_thread::sleep_for(std::chrono::milliseconds(update.tokens.empty() ? 5 : 0));
      continue;
    }
    detokenizer.Finish(&reply);
    print();
    WriteText("\n");
    if (update.completion->reason == FinishReason::kFailed) return update.completion->status;
    if (options_.stats) PrintStats(*update.completion);
    const ReuseReport& report = update.completion->report;
    last_ = {1, report.prompt_tokens, report.used_tokens, new_tokens};
    all_ = {all_.turns + 1, all_.prompt_tokens + last_.prompt_tokens,
            all_.used_tokens + last_.used_tokens, all_.new_tokens + last_.new_tokens};
    return reply;
  }
}

void Session::Prepare(std::vector<TokenId> tokens, bool wait) {
  history_ = std::move(tokens);
  if (history_.empty()) return;
  GenerateRequest request;
  request.prompt = history_;
  request.idle = true;
  const auto stream = engine_->Submit(std::move(request));
  // Too long, or refused: the next turn computes it then.
  if (stream.ok() && wait) (*stream)->WaitForAll();
}

std::string Session::Reuse::Describe() const {
  return fmt::format("{} of {} prompt tokens reused, {} computed, {} were new", used_tokens,
                     prompt_tokens, prompt_tokens - used_tokens, new_tokens);
}

std::string Session::DescribeCache() {
  constexpr size_t kNodesMax = 32;
  const NamespaceKey key{executor_.card().digest, ""};
  std::promise<std::pair<CacheStats, std::vector<TreeNodeView>>> promise;
  engine_->Post(
      [&](StateCache& cache) { promise.set_value({cache.stats(), cache.View(key, kNodesMax)}); });
  const auto [stats, nodes] = promise.get_future().get();
  std::string text;
  if (last_.turns > 0) {
    text += fmt::format("last turn: {}\nall {} turns: {}; {} computed ahead, in idle time\n",
                        last_.Describe(), all_.turns, all_.Describe(), engine_->stats().rows_idle);
  }
  const size_t used = stats.bytes_cached + stats.bytes_leased + stats.bytes_metadata;
  text += fmt::format("stored: {} tokens in {} runs, {} snapshots; {} of {}\n", stats.tokens_stored,
                      nodes.size(), stats.snapshots, FormatBytes(used),
                      FormatBytes(stats.bytes_budget));
  for (const TreeNodeView& node : nodes) {
    text +=
        fmt::format("{:{}}tokens {} to {}", "", 2 + 2 * size_t(node.depth), node.begin, node.end);
    if (!node.snapshots.empty()) {
      text += fmt::format(", snapshots at {}", fmt::join(node.snapshots, " "));
    }
    text += "\n";
  }
  return text;
}

void Session::PrintStats(const Completion& completion) const {
  const ReuseReport& report = completion.report;
  const double seconds = (completion.total_ms - completion.first_token_ms) / 1000;
  const double rate = seconds > 0 ? (completion.generated_tokens - 1) / seconds : 0;
  std::fprintf(
      stderr,
      "[prompt %d tokens, %d reused (%s); first token after %.0f ms; %d tokens at %.1f/s]\n",
      report.prompt_tokens, report.used_tokens, std::string(NameOf(report.reason)).c_str(),
      completion.first_token_ms, completion.generated_tokens, rate);
}

// Reads one message; lines that end in a backslash go on. False at the end of the input.
bool ReadMessage(bool terminal, std::string* message) {
  message->clear();
  for (bool more = true; more;) {
    if (terminal) std::fputs(message->empty() ? "> " : ". ", stderr);
    std::string line;
    if (!std::getline(std::cin, line)) return false;
    more = !line.empty() && line.back() == '\\';
    if (more) line.back() = '\n';
    *message += line;
  }
  return true;
}

Status Chat(Session* session, Conversation* conversation) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::fprintf(
        stderr,
        "%s. /reset forgets, /cache tells what is reused, /quit ends, Ctrl-C stops a reply.\n",
        conversation->is_chat() ? "Chat" : "No chat template: plain completion");
  }
  std::string message;
  while (ReadMessage(terminal, &message)) {
    if (message == "/quit" || message == "/exit") break;
    if (message == "/reset") {
      conversation->Clear();
      session->Prepare({}, false);
      continue;
    }
    if (message == "/cache") {
      WriteText(session->DescribeCache());
      continue;
    }
    if (message.empty()) continue;
    interrupted = 0;
    auto request = conversation->Ask(message);
    const auto reply =
        request.ok() ? session->Answer(std::move(*request)) : Result<std::string>(request.status());
    if (reply.ok()) {
      conversation->Reply(*reply);
      auto next = conversation->NextTurn();
      if (next.ok()) session->Prepare(std::move(*next), !terminal);
    } else if (terminal) {
      std::fprintf(stderr, "reprise: %s\n", reply.status().message().c_str());
    } else {
      return reply.status();
    }
    interrupted = 0;
  }
  if (terminal) std::fputc('\n', stderr);
  return OkStatus();
}

Status Run(Options options) {
  SetLogLevel(LogLevel::kWarning);  // the conversation owns the terminal
  options.sampling.seed = options.seed ? *options.seed : std::random_device()();
  if (options.model.context_tokens == 0) options.model.context_tokens = kContextDefault;
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  REPRISE_ASSIGN(const GenerationDefaults defaults, ReadGenerationDefaults(loaded->checkpoint()));
  Apply(defaults, &options.sampling);
  Apply(options.chosen, &options.sampling);
  REPRISE_TRY(Validate(options.sampling, loaded->model().vocab_size()));
  REPRISE_ASSIGN(const std::unique_ptr<Session> session, Session::Create(loaded.get(), options));
  REPRISE_ASSIGN(Conversation conversation,
                 Conversation::Create(&session->text(), options.system, options.plain));
  CatchInterrupts();
  if (options.prompt.empty()) return Chat(session.get(), &conversation);
  REPRISE_ASSIGN(GenerateRequest request, conversation.Ask(options.prompt));
  return session->Answer(std::move(request)).status();
}

}  // namespace

void DefineRun(Flags* flags) {
  auto options = std::make_shared<Options>();
  options->sampling = DefaultSampling();
  AddModelOptions(flags, &options->model);
  flags->SetHeading("Conversation");
  flags->Add("-p,--prompt", &options->prompt, "answer this and exit");
  flags->Add("-s,--system", &options->system, "system prompt");
  flags->Add("-n,--max-tokens", &options->max_tokens, "maximum reply tokens",
             {.min = 1, .max = 1 << 20});
  flags->Add("-c,--context", &options->model.context_tokens,
             "maximum tokens of the conversation (default: the model's, at most 8192)",
             {.min = 64, .max = 1 << 24});
  flags->Add("--plain", &options->plain, "complete text as it is, without the chat template");
  flags->Add("--tokenizer", &options->tokenizer,
             "tokenizer.json, or a folder with one, for a model without a tokenizer");
  flags->Add("--stats", &options->stats,
             "print after each reply what was reused and how fast it was");
  flags->SetHeading("Sampling");
  SamplingParams* sampling = &options->sampling;
  GenerationDefaults* chosen = &options->chosen;
  flags->Add("-t,--temperature", &chosen->temperature,
             "0: always the most likely token (default: the model's, else 0.7)");
  flags->Add("--top-k", &chosen->top_k,
             "sample from this many of the most likely tokens; 0: all (default: the model's, else "
             "0)");
  flags->Add("--top-p", &chosen->top_p,
             "sample from the most likely tokens that together have this probability (default: the "
             "model's, else 0.95)");
  flags->Add("--min-p", &chosen->min_p,
             "leave out tokens less likely than this share of the most likely one (default: the "
             "model's, else 0)");
  flags->Add("--repetition-penalty", &chosen->repetition_penalty,
             "penalty of tokens in prompt or reply; 1: none (default: the model's, else 1)");
  flags->Add("--presence-penalty", &sampling->presence_penalty, "penalty of tokens in the reply");
  flags->Add("--frequency-penalty", &sampling->frequency_penalty,
             "penalty of tokens in the reply, for each time they occur");
  flags->Add("--seed", &options->seed, "the same seed gives the same replies (default: random)");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
