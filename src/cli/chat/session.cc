// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <span>
#include <thread>
#include <utility>

#include "cli/lora/lora.h"
#include "engine/draft/speculate.h"
#include "model/adapter/adapter.h"
#include "text/detokenizer.h"
#include "text/output/output_parser.h"
#include "weights/memory.h"

namespace reprise::cli {

volatile sig_atomic_t interrupts = 0;

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
  REPRISE_ASSIGN(session->adapter_, LoadLora(loaded, options.lora));
  if (!options.plain && !session->text_.chat_templates.empty()) {
    const std::string& source = session->text_.chat_templates.front().source;
    session->format_ = OutputFormat::Detect(source, session->text_.tokenizer.get());
  }
  CacheOptions cache;
  cache.sequence_count = 2;
  cache.snapshot_gap = 1;  // short turns count, and one user leaves few
  cache.context_tokens = int32_t(card.context_length);
  DeviceMemory& memory = loaded->memory();
  size_t free = FindAvailableMemory(memory).bytes;
  EngineOptions engine;
  engine.speculation.mode = ModeOn(options.speculate, loaded->backend().chooses());
  if (!options.speculate.draft_model.empty()) {
    size_t bytes = 0;
    REPRISE_ASSIGN(session->draft_, DraftModel::Load(options.speculate.draft_model, options.model,
                                                     *session->text_.tokenizer));
    REPRISE_ASSIGN(engine.speculation.model,
                   session->draft_->MakeDrafter(cache, free, session->clock_, &bytes));
    free -= std::min(free, bytes);
  }
  cache.budget_bytes = DefaultBudget(card.state, free, cache);
  REPRISE_ASSIGN(std::unique_ptr<StateCache> state, StateCache::Create(card.state, cache, memory));
  engine.context_tokens = cache.context_tokens;
  engine.running_max = cache.sequence_count;
  session->engine_ =
      std::make_unique<Engine>(session->executor_, std::move(state), engine, session->clock_);
  session->engine_->Start();
  return session;
}

namespace {

// The end of a prompt, where a template may have opened the reasoning.
std::span<const TokenId> LastOf(const std::vector<TokenId>& prompt) {
  constexpr size_t kTokens = 32;
  return std::span(prompt).last(std::min(prompt.size(), kTokens));
}

// Tokens become text, and that becomes what was thought and what is said.
class ReplyText {
 public:
  ReplyText(const Tokenizer& tokenizer, const OutputFormat& format, ReplyReader* reader)
      : tokenizer_(tokenizer),
        detokenizer_(tokenizer, {false, false, format.shown.get()}),
        parser_(format, nullptr),
        reader_(*reader) {}

  void Add(TokenId token) {
    if (tokenizer_.IsEos(token)) return;
    const size_t before = whole_.size();
    detokenizer_.Append(token, &whole_);
    Tell(std::string_view(whole_).substr(before));
  }
  std::string Finish() {
    const size_t before = whole_.size();
    detokenizer_.Finish(&whole_);
    Tell(std::string_view(whole_).substr(before));
    Tell(parser_.Finish());
    return std::move(whole_);
  }

 private:
  void Tell(std::string_view text) {
    if (text.empty()) return;
    reader_.Raw(text);
    Tell(parser_.Feed(text));
  }
  void Tell(const OutputEvents& events) {
    for (const OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::kReasoning) {
        reader_.Think(event.text);
      } else if (!event.text.empty()) {
        reader_.Say(event.text);
      }
    }
  }

  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  OutputParser parser_;
  ReplyReader& reader_;
  std::string whole_;
};

}  // namespace

Result<std::string> Session::Answer(GenerateRequest request, ReplyReader* reader) {
  request.sampling = options_.sampling;
  request.adapter = adapter_;
  request.end_tokens = text_.tokenizer->eos_ids();
  const int64_t room = int64_t{context_tokens()} - int64_t(request.prompt.size());
  if (room < 1) {
    return ResourceExhausted("the conversation has " + std::to_string(request.prompt.size()) +
                             " tokens and the context only " + std::to_string(context_tokens()) +
                             ": start anew with /clear, or give more with --context");
  }
  const int64_t wanted = options_.max_tokens > 0 ? options_.max_tokens : room;
  request.max_tokens = int32_t(std::min(wanted, room));
  // Without tools nothing is taken for a call.
  const OutputFormat format =
      format_.ForPrompt(text_.tokenizer->Decode(LastOf(request.prompt), true), false);
  const auto parts =
      std::mismatch(request.prompt.begin(), request.prompt.end(), history_.begin(), history_.end());
  const int64_t new_tokens = request.prompt.end() - parts.first;
  REPRISE_ASSIGN(const std::shared_ptr<TokenStream> stream, engine_->Submit(std::move(request)));
  ReplyText text(*text_.tokenizer, format, reader);
  for (;;) {
    if (interrupts != 0) stream->Cancel();
    const TokenStream::Update update = stream->Poll();
    for (const GeneratedToken& token : update.tokens) text.Add(token.chosen.token);
    if (!update.completion) {
      std::this_thread::sleep_for(std::chrono::milliseconds(update.tokens.empty() ? 5 : 0));
      continue;
    }
    std::string reply = text.Finish();
    if (update.completion->reason == FinishReason::kFailed) return update.completion->status;
    Note(*update.completion, new_tokens);
    return reply;
  }
}

void Session::Note(const Completion& completion, int64_t new_tokens) {
  const ReuseReport& report = completion.report;
  last_ = {1, report.prompt_tokens, report.used_tokens, new_tokens};
  all_ = {all_.turns + 1, all_.prompt_tokens + last_.prompt_tokens,
          all_.used_tokens + last_.used_tokens, all_.new_tokens + last_.new_tokens};
  const double seconds = (completion.total_ms - completion.first_token_ms) / 1000;
  const double rate = seconds > 0 ? (completion.generated_tokens - 1) / seconds : 0;
  statistics_ = fmt::format(
      "[prompt {} tokens, {} reused ({}); first token after {:.0f} ms; {} tokens at {:.1f}/s]",
      report.prompt_tokens, report.used_tokens, NameOf(report.reason), completion.first_token_ms,
      completion.generated_tokens, rate);
  const DraftCount drafts = completion.speculation.total();
  if (drafts.run == 0) return;
  statistics_.pop_back();
  statistics_ += fmt::format("; {} of {} drafts right]", drafts.accepted, drafts.run);
}

void Session::Prepare(GenerateRequest known, bool wait) {
  history_ = known.prompt;
  if (history_.empty()) return;
  known.adapter = adapter_;
  known.idle = true;
  const auto stream = engine_->Submit(std::move(known));
  // Too long, or refused: the next turn computes it then.
  if (stream.ok() && wait) (*stream)->WaitForAll();
}

std::string Session::Reuse::Describe() const {
  return fmt::format("{} of {} prompt tokens reused, {} computed, {} were new", used_tokens,
                     prompt_tokens, prompt_tokens - used_tokens, new_tokens);
}

std::string Session::DescribeCache() {
  constexpr size_t kNodesMax = 32;
  const bool whole = adapter_ && adapter_->invocation().empty();
  const NamespaceKey key{whole ? adapter_->digest() : executor_.card().digest, ""};
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

}  // namespace reprise::cli
