// SPDX-License-Identifier: Apache-2.0
#include "api/chat/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <utility>

#include "api/chat/blocks.h"
#include "api/chat/kept_budget.h"
#include "api/chat/report.h"
#include "api/chat/session.h"
#include "api/constrain/constraints.h"
#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "api/ops/report_log.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "text/detokenizer.h"
#include "text/output/thinking.h"
#include "text/stop_strings.h"

namespace reprise::api {
namespace {

// A client that reads slowly is not sent more than this ahead; the tokens wait in the engine's
// stream, where they are small.
constexpr size_t kPendingBytesMax = size_t{64} << 10;
constexpr size_t kTextBytesAhead = size_t{4} << 10;  // that an account is asked for at a time

uint64_t RandomSeed() {
  static std::atomic<uint64_t> count{std::random_device()()};
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) ^ count.fetch_add(1);
}

// One line about a request: what it reused and how long it took, not what it said.
void LogReply(const std::string& request_id, const Tenant& tenant, const Completion& completion) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  const ReuseReport& report = completion.report;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "reply").Member("id", request_id);
  json.Member("tenant", tenant.name).Member("prompt_tokens", completion.prompt_tokens);
  json.Member("used_tokens", report.used_tokens).Member("reason", NameOf(report.reason));
  if (report.diverged_at >= 0) json.Member("diverged_at", report.diverged_at);
  if (report.kept_tokens > 0) json.Member("snapkv_kept_tokens", report.kept_tokens);
  json.Member("snapshots_taken", report.snapshots_taken);
  json.Member("generated_tokens", completion.generated_tokens);
  json.Member("queue_ms", completion.queue_ms).Member("first_token_ms", completion.first_token_ms);
  json.Member("total_ms", completion.total_ms).EndObject();
  Log(LogLevel::kInfo, line);
}

ApiError TooMuchKept() {
  return {400,
          fmt::format("an answer in one piece has at most {} log-probabilities (n x max_tokens "
                      "x (1 + top_logprobs)); ask for fewer, or for a stream",
                      KeptBudget::kReplyEntriesMax),
          "logprobs", "unsupported_value"};
}

// One choice on its way: tokens -> text -> stop strings -> meaning.
struct Voice {
  std::shared_ptr<TokenStream> stream;
  std::unique_ptr<Detokenizer> detokenizer;
  std::unique_ptr<StopStrings> stops;
  std::unique_ptr<OutputParser> parser;
  // Tokens whose text is not sent yet: it may turn out to be part of a stop string.
  std::vector<std::pair<size_t, ReplyToken>> held;  // where its text begins
  size_t text_bytes = 0;                            // out of the detokenizer
  size_t sent_bytes = 0;                            // out of the stop strings
  int64_t unread_tokens = 0;                        // what they mean is not known yet
  Choice choice;
  size_t calls_over = 0;  // of the choice's calls: all of whose arguments are there

  // Where reasoning has a budget: what was said so far, with what the server put in.
  std::vector<TokenId> said;
  int32_t thought = 0;  // tokens of reasoning
  int32_t before = 0;   // of `said`: in the first stream, and put in by the server
  bool closed = false;  // its reasoning was ended
  std::optional<ReuseReport> report;
  double first_token_ms = -1;
  bool ended = false;
};

class Reply : public std::enable_shared_from_this<Reply> {
 public:
  Reply(Service* service, http::ExchangePtr exchange, ReplyPlan plan,
        std::unique_ptr<ReplySink> sink)
      : service_(*service),
        exchange_(std::move(exchange)),
        plan_(std::move(plan)),
        sink_(std::move(sink)) {}
  ~Reply() { service_.kept().Give(kept_); }

  std::optional<ApiError> Start();

 private:
  std::optional<ApiError> ParseTools();
  std::optional<ApiError> CheckKept();
  std::optional<ApiError> SubmitFirst();
  std::optional<ApiError> Submit(size_t index);
  void SubmitNext();
  void Listen(Voice& voice);
  std::optional<ApiError> CheckPrompts() const;
  std::optional<ApiError> Keep(size_t entries);
  std::optional<ApiError> TakePlan();
  bool TakeText(size_t bytes);
  void Open(Voice& voice) const;
  GenerateRequest MakeRequest(size_t index) const;
  static void Follow(std::span<const TokenId> said, GenerateRequest* request);
  void Wake();
  void Pump();
  void PumpOne(size_t index);
  bool Append(size_t index, std::vector<GeneratedToken> tokens, Delta* delta);
  bool IsSpent(Voice& voice) const;
  bool CloseThinking(size_t index, Delta* delta);
  std::vector<TokenId> ClosingTokens() const;
  void Count(const Voice& voice, Completion* completion) const;
  void Emit(Voice& voice, std::string_view text, Delta* delta);
  void Note(Voice& voice, const OutputEvents& events);
  std::string IdFor(const Voice& voice, const OutputEvent& call) const;
  bool HasCalled(const Voice& voice) const;
  void EndOne(size_t index, Completion completion);
  void Complete();
  void Fail(const ApiError& error);
  void CancelAll();
  ReplyToken Describe(const GeneratedToken& token) const;
  bool IsEnd(TokenId token) const;
  Usage CountUsage() const;

  Service& service_;
  const http::ExchangePtr exchange_;
  ReplyPlan plan_;
  const std::unique_ptr<ReplySink> sink_;
  std::optional<JsonDocument> tools_;
  std::vector<Voice> voices_;
  size_t submitted_ = 0;                   // of the voices: those that have a stream
  std::vector<TokenId> closed_by_prompt_;  // what the server put behind the prompt
  uint64_t seed_ = 0;
  int64_t begun_ms_ = 0;
  size_t kept_ = 0;          // of service_.kept()
  size_t text_room_ = 0;     // of the account: taken for text that was not said yet
  StopStrings::List stops_;  // of all voices
  std::atomic<bool> woken_{false};
  bool over_ = false;  // done, failed or cancelled
};

std::optional<ApiError> Reply::ParseTools() {
  if (plan_.tools.empty()) return std::nullopt;
  auto tools = JsonDocument::Parse(plan_.tools);
  if (!tools.ok()) return ApiError::From(tools.status());
  tools_.emplace(std::move(*tools));
  return std::nullopt;
}

// What is certain to be too much is refused before it is computed.
std::optional<ApiError> Reply::CheckKept() {
  const size_t entries = 1 + static_cast<size_t>(std::max(0, plan_.options.logprobs));
  const size_t choices = static_cast<size_t>(plan_.options.choices);
  if (plan_.keep_tokens && plan_.options.max_tokens) {
    const size_t tokens =
        plan_.prompts.size() * choices *
        static_cast<size_t>(std::min(*plan_.options.max_tokens, service_.model().context_tokens));
    if (tokens * entries > KeptBudget::kReplyEntriesMax) return TooMuchKept();
  }
  if (!plan_.score_prompt) return std::nullopt;
  size_t scored = 0;
  for (const Prompt& prompt : plan_.prompts) scored += prompt.ids.size();
  return Keep(scored * choices * entries);
}

// Makes room for so many entries, if there is some.
std::optional<ApiError> Reply::Keep(size_t entries) {
  if (kept_ + entries > KeptBudget::kReplyEntriesMax) return TooMuchKept();
  if (!service_.kept().Take(entries)) {
    return ApiError{429, "the server keeps too many log-probabilities at the moment", "",
                    "rate_limit_exceeded"};
  }
  kept_ += entries;
  return std::nullopt;
}

GenerateRequest Reply::MakeRequest(size_t index) const {
  const ReplyOptions& options = plan_.options;
  const size_t choices = static_cast<size_t>(options.choices);
  const Prompt& prompt = plan_.prompts[index / choices];
  GenerateRequest request;
  request.prompt = prompt.ids;
  request.boundaries = prompt.boundaries;
  request.sampling = options.sampling;
  request.sampling.seed = seed_ + index % choices;
  const int64_t room = int64_t{service_.model().context_tokens} - int64_t(prompt.ids.size());
  const int64_t wanted = options.max_tokens ? *options.max_tokens : room;
  request.max_tokens = static_cast<int32_t>(std::max<int64_t>(0, std::min(wanted, room)));
  // A prompt that leaves no room is the engine's to refuse.
  if (request.max_tokens == 0 && wanted != 0) request.max_tokens = 1;
  request.min_tokens = std::min(options.min_tokens, request.max_tokens);
  if (!options.ignore_eos) request.end_tokens = service_.model().tokenizer->eos_ids();
  request.end_tokens.insert(request.end_tokens.end(), options.stop_tokens.begin(),
                            options.stop_tokens.end());
  if (plan_.language) {
    request.constraint = service_.constraints().Start(plan_.language);
    Follow(closed_by_prompt_, &request);
  }
  request.logprobs = options.logprobs;
  if (plan_.score_prompt) request.prompt_logprobs = options.logprobs;
  // Going ahead of others is for those who run the server.
  request.priority = plan_.tenant->admin ? options.priority : std::min(options.priority, 0);
  request.tenant = plan_.tenant->name;
  request.tenant_weight = plan_.tenant->weight;
  request.salt = plan_.tenant->Namespace(plan_.cache.salt);
  request.pin_ms = plan_.cache.pin_ms;
  request.min_cache_tokens = plan_.cache.min_tokens;
  request.cache_read = plan_.cache.read;
  request.cache_write = plan_.cache.write;
  request.snapkv = options.snapkv;
  return request;
}

// The constraint goes on behind what is said already. A marker that it does not know there would be
// one that the reply could not have written either; the request then fails by name, not in silence.
void Reply::Follow(std::span<const TokenId> said, GenerateRequest* request) {
  if (request->constraint == nullptr) return;
  for (const TokenId token : said) {
    if (!request->constraint->Accept(token).ok()) return;
  }
}

// The first choice takes the request's place in the queue. Others come one by one, each when the
// one before it runs: a request with many of them leaves the queue to others, who have their turn
// between two of them.
std::optional<ApiError> Reply::SubmitFirst() {
  seed_ = plan_.options.seed.value_or(RandomSeed());
  begun_ms_ = service_.clock().NowMs();
  if (plan_.thinking_budget == 0 && plan_.format.thinking_begun) {
    // The prompt has opened the reasoning: it closes it, too.
    closed_by_prompt_ = ClosingTokens();
    for (Prompt& prompt : plan_.prompts) {
      prompt.ids.insert(prompt.ids.end(), closed_by_prompt_.begin(), closed_by_prompt_.end());
    }
    plan_.format.thinking_begun = false;
  }
  if (auto error = CheckPrompts()) return error;
  voices_.resize(plan_.prompts.size() * static_cast<size_t>(plan_.options.choices));
  return Submit(0);
}

// A voice that waits for its turn takes next to nothing.
void Reply::Open(Voice& voice) const {
  Detokenizer::Options detokenizer;
  detokenizer.at_start = false;
  detokenizer.shown = plan_.format.shown.get();
  detokenizer.marked = plan_.format.call_tokens.get();
  detokenizer.mark = kTokenByte;
  voice.detokenizer = std::make_unique<Detokenizer>(*service_.model().tokenizer, detokenizer);
  voice.stops = std::make_unique<StopStrings>(stops_);
  voice.parser = std::make_unique<OutputParser>(plan_.format, tools_ ? &tools_->root() : nullptr);
}

// What the reply holds from its first to its last token, beyond the text.
std::optional<ApiError> Reply::TakePlan() {
  size_t bytes = plan_.bytes_kept + plan_.tools.size();
  for (const std::string& stop : plan_.options.stop) bytes += stop.size() * (1 + sizeof(uint32_t));
  stops_ = StopStrings::MakeList(std::exchange(plan_.options.stop, {}));
  for (const Prompt& prompt : plan_.prompts) {
    // Here, in the queue, and in the sequences that run beside each other.
    bytes += 4 * prompt.ids.size() * sizeof(TokenId) + prompt.boundaries.size() * sizeof(Boundary);
  }
  bytes += plan_.prompts.size() * static_cast<size_t>(plan_.options.choices) * sizeof(Voice);
  const Status taken = exchange_->account()->TakeAnswer(bytes, "the reply");
  return taken.ok() ? std::nullopt : std::optional<ApiError>(ApiError::From(taken));
}

// Room for text that is kept until the reply is complete. False: there is none, it has failed.
bool Reply::TakeText(size_t bytes) {
  if (bytes > text_room_) {
    const Status taken = exchange_->account()->TakeAnswer(bytes + kTextBytesAhead, "the reply");
    if (!taken.ok()) {
      Fail(ApiError::From(taken));
      return false;
    }
    text_room_ += bytes + kTextBytesAhead;
  }
  text_room_ -= bytes;
  return true;
}

// None of the prompts fails when its turn comes.
std::optional<ApiError> Reply::CheckPrompts() const {
  const size_t choices = static_cast<size_t>(plan_.options.choices);
  for (size_t i = 0; i < plan_.prompts.size(); ++i) {
    const int64_t context = service_.model().context_tokens;
    const int64_t too_many = plan_.prompts[i].tokens_too_many;
    if (too_many > 0) return ApiError::TooLong(too_many, context);
    const Status status = service_.engine().Check(MakeRequest(i * choices));
    if (status.ok()) continue;
    const int64_t tokens = int64_t(plan_.prompts[i].ids.size());
    return tokens >= context ? ApiError::TooLong(tokens, context) : ApiError::FromEngine(status);
  }
  return std::nullopt;
}

std::optional<ApiError> Reply::Submit(size_t index) {
  GenerateRequest request = MakeRequest(index);
  request.continues = index > 0;
  auto stream = service_.engine().Submit(std::move(request));
  if (!stream.ok()) return ApiError::FromEngine(stream.status());
  Open(voices_[index]);
  voices_[index].stream = std::move(*stream);
  submitted_ = index + 1;
  return std::nullopt;
}

void Reply::SubmitNext() {
  const Voice& last = voices_[submitted_ - 1];
  if (submitted_ == voices_.size() || !(last.report || last.ended)) return;
  if (const auto error = Submit(submitted_)) return Fail(*error);
  Listen(voices_[submitted_ - 1]);
}

// Hears what the voice's stream has to say, and what it has said already.
void Reply::Listen(Voice& voice) {
  voice.stream->SetNotify([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Wake();
  });
  Wake();
}

std::optional<ApiError> Reply::Start() {
  if (auto error = ParseTools()) return error;
  if (auto error = CheckKept()) return error;
  if (auto error = TakePlan()) return error;
  if (auto error = SubmitFirst()) return error;
  exchange_->Post([self = shared_from_this()] { self->sink_->Begin(); });
  exchange_->OnClose([self = shared_from_this()] {
    self->over_ = true;
    self->CancelAll();
  });
  exchange_->OnDrained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Pump();
  });
  Listen(voices_[0]);
  return std::nullopt;
}

// From the engine thread: something is new.
void Reply::Wake() {
  if (woken_.exchange(true)) return;
  exchange_->Post([self = shared_from_this()] {
    self->woken_ = false;
    self->Pump();
  });
}

void Reply::Pump() {
  for (size_t i = 0; i < submitted_ && !over_; ++i) {
    if (exchange_->pending_bytes() > kPendingBytesMax) return;
    if (!voices_[i].ended) PumpOne(i);
  }
  if (!over_) SubmitNext();
  if (over_) return;
  const auto ended = [](const Voice& voice) { return voice.ended; };
  if (std::all_of(voices_.begin(), voices_.end(), ended)) Complete();
}

void Reply::PumpOne(size_t index) {
  Voice& voice = voices_[index];
  TokenStream::Update update = voice.stream->Poll();
  if (update.started && !voice.report) {
    if (index == 0) sink_->OnStart(*update.started);
    voice.report = *update.started;
  }
  if (!update.tokens.empty() && voice.first_token_ms < 0) {
    voice.first_token_ms = static_cast<double>(service_.clock().NowMs() - begun_ms_);
  }
  Delta delta;
  delta.choice = index;
  delta.calls = &voice.choice.calls;
  delta.calls_before = voice.choice.calls.size();
  const auto over = [&] { return voice.stops->stopped() || HasCalled(voice); };
  // What the engine did after the reasoning was ended does not count.
  if (!over() && Append(index, std::move(update.tokens), &delta)) update.completion.reset();
  if (over_) return;  // it failed
  const bool stopped = over();
  if (stopped && !update.completion) voice.stream->Cancel();
  if (update.completion && !stopped) {
    std::string rest;
    voice.detokenizer->Finish(&rest);
    std::string out;
    voice.stops->Append(rest, &out);
    voice.stops->Finish(&out);
    voice.sent_bytes = SIZE_MAX / 2;  // nothing is held back any more
    Emit(voice, out, &delta);
  }
  if (update.completion && !HasCalled(voice)) {
    OutputEvents last = voice.parser->Finish();
    Note(voice, last);
    for (OutputEvent& event : last) AppendEvent(std::move(event), &delta.events);
  }
  if (!delta.events.empty() || !delta.tokens.empty()) sink_->OnDelta(delta);
  if (update.completion) EndOne(index, std::move(*update.completion));
}

ReplyToken Reply::Describe(const GeneratedToken& token) const {
  const Tokenizer& tokenizer = *service_.model().tokenizer;
  ReplyToken described;
  described.id = token.chosen.token;
  described.bytes = std::string(tokenizer.TokenBytes(token.chosen.token));
  described.logprob = token.chosen.logprob;
  for (const TokenLogprob& other : token.top) {
    described.top.push_back(
        {other.token, std::string(tokenizer.TokenBytes(other.token)), other.logprob, {}});
  }
  return described;
}

// Whether the engine ends a reply with it (MakeRequest).
bool Reply::IsEnd(TokenId token) const {
  const std::vector<TokenId>& stops = plan_.options.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return true;
  return !plan_.options.ignore_eos && service_.model().tokenizer->IsEos(token);
}

// True if the reasoning was ended, and the reply goes on in another stream.
bool Reply::Append(size_t index, std::vector<GeneratedToken> tokens, Delta* delta) {
  Voice& voice = voices_[index];
  for (const GeneratedToken& token : tokens) {
    if (IsEnd(token.chosen.token)) {
      voice.choice.end = Describe(token);
      return false;
    }
    std::string text;
    voice.detokenizer->Append(token.chosen.token, &text);
    if (plan_.tell_tokens) voice.held.emplace_back(voice.text_bytes, Describe(token));
    if (plan_.keep_tokens) {
      if (const auto error = Keep(1 + token.top.size())) {
        Fail(*error);
        return false;
      }
    }
    if (!TakeText(text.size())) return false;
    voice.text_bytes += text.size();
    ++voice.unread_tokens;
    std::string out;
    const bool stopped = voice.stops->Append(text, &out);
    voice.sent_bytes += out.size();
    Emit(voice, out, delta);
    if (stopped || HasCalled(voice)) {
      voice.held.clear();
      return false;
    }
    if (!plan_.thinking_budget) continue;
    voice.said.push_back(token.chosen.token);
    if (IsSpent(voice) && CloseThinking(index, delta)) return true;
  }
  return false;
}

// Whether the reply still thinks, though it has no more tokens for it.
bool Reply::IsSpent(Voice& voice) const {
  if (!voice.parser->thinking()) return false;
  return ++voice.thought >= *plan_.thinking_budget && !voice.closed;
}

std::vector<TokenId> Reply::ClosingTokens() const {
  std::vector<TokenId> ids;
  EncodeOptions options;
  options.add_special = false;
  options.parse_special = true;
  const std::string text = EndOfThinking(*plan_.format.reasoning);
  // Cannot fail for a text as short as this; without it the reply would only go on thinking.
  static_cast<void>(service_.model().tokenizer->Encode(text, options, &ids).ok());
  return ids;
}

// Ends the reasoning in the model's place: the reply goes on as another request, whose prompt is
// all that was said and the marker. The cache has the state of all but the marker.
bool Reply::CloseThinking(size_t index, Delta* delta) {
  Voice& voice = voices_[index];
  voice.closed = true;
  GenerateRequest request = MakeRequest(index);
  request.continues = true;
  const std::vector<TokenId> closing = ClosingTokens();
  voice.said.insert(voice.said.end(), closing.begin(), closing.end());
  request.prompt.insert(request.prompt.end(), voice.said.begin(), voice.said.end());
  request.max_tokens -= static_cast<int32_t>(voice.said.size());
  request.min_tokens = 0;
  Follow(voice.said, &request);
  if (closing.empty() || request.max_tokens <= 0) return false;  // it ends by its length
  auto stream = service_.engine().Submit(std::move(request));
  if (!stream.ok()) {
    Fail(ApiError::FromEngine(stream.status()));
    return true;
  }
  voice.before = static_cast<int32_t>(voice.said.size());
  voice.stream->Cancel();
  voice.stream = std::move(*stream);
  std::string text;
  voice.detokenizer->Finish(&text);
  text += EndOfThinking(*plan_.format.reasoning);
  std::string out;
  voice.text_bytes += text.size();
  voice.stops->Finish(&out);
  voice.stops = std::make_unique<StopStrings>(stops_);
  voice.sent_bytes = voice.text_bytes;
  Emit(voice, out + text, delta);
  Listen(voice);
  return true;
}

// The completion of a reply in two streams.
void Reply::Count(const Voice& voice, Completion* completion) const {
  if (voice.before == 0) return;
  completion->prompt_tokens -= voice.before;
  completion->generated_tokens += voice.before;
  if (voice.report) {
    const int32_t stored = completion->report.stored_tokens;
    completion->report = *voice.report;
    completion->report.stored_tokens = std::min(stored, completion->prompt_tokens);
  }
  completion->first_token_ms = voice.first_token_ms;
  completion->total_ms = static_cast<double>(service_.clock().NowMs() - begun_ms_);
}

// Text that is certain goes on: to the parser, and the tokens behind it with it.
void Reply::Emit(Voice& voice, std::string_view text, Delta* delta) {
  size_t told = 0;
  while (told < voice.held.size() && voice.held[told].first < voice.sent_bytes) ++told;
  for (size_t i = 0; i < told; ++i) {
    if (plan_.keep_tokens) voice.choice.tokens.push_back(voice.held[i].second);
    delta->tokens.push_back(std::move(voice.held[i].second));
  }
  voice.held.erase(voice.held.begin(), voice.held.begin() + static_cast<ptrdiff_t>(told));
  if (text.empty()) return;
  OutputEvents events = voice.parser->Feed(text);
  if (plan_.one_call) {
    const auto call = std::find_if(events.begin(), events.end(), [](const OutputEvent& event) {
      return event.kind == OutputEvent::Kind::kCallEnd;
    });
    if (call != events.end()) events.erase(call + 1, events.end());
  }
  Note(voice, events);
  for (OutputEvent& event : events) AppendEvent(std::move(event), &delta->events);
}

// Keeps what was said so far.
void Reply::Note(Voice& voice, const OutputEvents& events) {
  if (!events.empty()) {
    const int64_t tokens = std::exchange(voice.unread_tokens, 0);
    const bool thought = events.back().kind == OutputEvent::Kind::kReasoning;
    if (thought) voice.choice.reasoning_tokens += tokens;
  }
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        voice.choice.reasoning += event.text;
        break;
      case OutputEvent::Kind::kContent:
        voice.choice.content += event.text;
        break;
      case OutputEvent::Kind::kCallBegin:
        voice.choice.calls.push_back({IdFor(voice, event), event.name, "", false});
        break;
      case OutputEvent::Kind::kArguments:
        voice.choice.calls.back().arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        voice.choice.calls.back().complete = event.complete;
        ++voice.calls_over;
        break;
    }
  }
}

// The id that the model gave the call, if it is one of its own; otherwise a new one.
std::string Reply::IdFor(const Voice& voice, const OutputEvent& call) const {
  const auto& calls = voice.choice.calls;
  const bool taken = std::any_of(calls.begin(), calls.end(),
                                 [&](const ToolCall& other) { return other.id == call.id; });
  if (!call.id.empty() && !taken) return call.id;
  const size_t letters = plan_.format.calls.empty() ? 0 : plan_.format.calls.front()->id_letters;
  return letters > 0 ? MakeRandomId("", letters) : MakeRandomId("call_");
}

// Whether the reply has made the only call it may make.
bool Reply::HasCalled(const Voice& voice) const { return plan_.one_call && voice.calls_over > 0; }

void Reply::EndOne(size_t index, Completion completion) {
  Voice& voice = voices_[index];
  voice.ended = true;
  Count(voice, &completion);
  Choice& choice = voice.choice;
  const bool called = std::any_of(choice.calls.begin(), choice.calls.end(),
                                  [](const ToolCall& call) { return call.complete; });
  // Half a call is none: whoever acts on it should know that it was cut off.
  const bool cut_off = completion.reason == FinishReason::kLength && !called;
  if (!cut_off && (HasCalled(voice) || (voice.stops->stopped() && called))) {
    choice.stop = StopKind::kToolCalls;  // whoever made it waits for its result
  } else if (voice.stops->stopped()) {
    choice.stop = StopKind::kStopString;
    choice.matched_stop = voice.stops->matched();
  } else if (completion.reason == FinishReason::kFailed) {
    return Fail(ApiError::FromEngine(completion.status));
  } else if (completion.reason == FinishReason::kCancelled) {
    return Fail({503, "the server is shutting down; try another one"});
  } else if (completion.reason == FinishReason::kLength) {
    choice.stop = StopKind::kLength;
  } else {
    choice.stop = choice.calls.empty() ? StopKind::kEnd : StopKind::kToolCalls;
  }
  if (plan_.score_prompt) {
    const Prompt& prompt = plan_.prompts[index / static_cast<size_t>(plan_.options.choices)];
    choice.prompt.push_back(Describe({{prompt.ids.front(), std::nanf("")}, {}}));
    for (const GeneratedToken& token : completion.prompt) choice.prompt.push_back(Describe(token));
    completion.prompt = {};
  }
  choice.completion = std::move(completion);
  service_.metrics().Observe(choice.completion, choice.stop);
  sink_->OnChoiceEnd(index, choice);
}

Usage Reply::CountUsage() const {
  Usage usage;
  const size_t per_prompt = static_cast<size_t>(plan_.options.choices);
  for (size_t i = 0; i < voices_.size(); ++i) {
    const Completion& completion = voices_[i].choice.completion;
    usage.completion_tokens += completion.generated_tokens;
    usage.reasoning_tokens += voices_[i].choice.reasoning_tokens;
    if (i % per_prompt != 0) continue;
    usage.prompt_tokens += completion.prompt_tokens;
    usage.cached_tokens += completion.report.used_tokens;
    usage.written_tokens += std::min(completion.prompt_tokens, completion.report.stored_tokens) -
                            completion.report.used_tokens;
  }
  return usage;
}

void Reply::Complete() {
  over_ = true;
  const Usage usage = CountUsage();
  std::vector<Choice> choices;
  for (Voice& voice : voices_) choices.push_back(std::move(voice.choice));
  const Completion& first = choices.front().completion;
  const std::string report =
      FormatReportJson(*service_.model().tokenizer, plan_.prompts.front().ids, plan_.cache.session,
                       plan_.passed_fields, first);
  LogReply(exchange_->request().id, *plan_.tenant, first);
  if (!plan_.cache.forget) {
    service_.reports().Add(*plan_.tenant, exchange_->request().id, report,
                           plan_.prompts.front().ids);
  }
  service_.feed().Wake();
  sink_->OnDone(choices, usage, report);
  if (plan_.done) plan_.done(choices.front());
}

void Reply::Fail(const ApiError& error) {
  over_ = true;
  CancelAll();
  sink_->OnError(error);
}

void Reply::CancelAll() {
  for (size_t i = 0; i < submitted_; ++i) voices_[i].stream->Cancel();
}

}  // namespace

std::optional<ApiError> PlanReply(Service* service, const ChatJob& job, Prompt prompt,
                                  const Tenant* tenant, Account* account, ReplyPlan* plan) {
  plan->format = service->model().output.ForPrompt(prompt.text, job.calls.parse);
  if (job.thinking.off() && !plan->format.thinking_begun) plan->format.thinking_over = true;
  plan->options = job.options;
  plan->cache = job.cache;
  plan->tenant = tenant;
  plan->tools = job.tools;
  plan->one_call = job.calls.one;
  plan->thinking_budget = job.thinking_budget;
  plan->passed_fields = job.passed_fields;
  plan->bytes_kept = BytesOf(job);
  plan->prompts.push_back(std::move(prompt));
  return Constrain(service, job.calls.parse ? job.tools : "", account, plan);
}

std::optional<ApiError> Constrain(Service* service, const std::string& tools, Account* account,
                                  ReplyPlan* plan) {
  const OutputRule& rule = plan->options.rule;
  if (rule.free()) return std::nullopt;
  if (plan->options.ignore_eos) {
    return ApiError{400, "ignore_eos cannot be combined with " + rule.field, "ignore_eos"};
  }
  auto language =
      service->constraints().Compile(rule, plan->format, tools, plan->one_call, account);
  if (!language.ok()) {
    ApiError error = ApiError::From(language.status());
    error.message = rule.field + ": " + error.message;
    error.param = rule.field;
    return error;
  }
  plan->language = std::move(*language);
  return std::nullopt;
}

std::optional<ApiError> StartReply(Service* service, const http::ExchangePtr& exchange,
                                   ReplyPlan plan, std::unique_ptr<ReplySink> sink) {
  if (auto error = ReadSession(exchange->request(), &plan.cache.session)) return error;
  for (Prompt& prompt : plan.prompts) prompt.text = std::string();  // the ids are what is needed
  return std::make_shared<Reply>(service, exchange, std::move(plan), std::move(sink))->Start();
}

}  // namespace reprise::api
