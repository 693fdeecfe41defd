// SPDX-License-Identifier: Apache-2.0
#include "api/chat/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "api/chat/long_reply.h"
#include "api/chat/report.h"
#include "api/chat/session.h"
#include "api/chat/voice/reply_room.h"
#include "api/chat/voice/speech.h"
#include "api/chat/voice/thinking_budget.h"
#include "api/constrain/constraints.h"
#include "api/ops/cache_feed.h"
#include "api/ops/metrics.h"
#include "api/ops/report_log.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "text/output/thinking.h"

namespace reprise::api {
namespace {

// A client that reads slowly is not sent more than this ahead; the tokens wait in the engine's
// stream, where they are small.
constexpr size_t kPendingBytesMax = size_t{64} << 10;
constexpr int32_t kBatchPriority = -1000;

uint64_t RandomSeed() {
  static std::atomic<uint64_t> count{std::random_device()()};
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) ^ count.fetch_add(1);
}

int64_t UnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
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

// A reply that nothing but the context ends, and that has become long.
void WarnOfLength(const std::string& request_id, const LongReply& reply, LongReply::Finding found,
                  int32_t context_tokens) {
  if (found == LongReply::Finding::kNothing) return;
  Log(LogLevel::kWarning,
      fmt::format("request {}: the reply has {} tokens{} and has no limit but the context of {} "
                  "tokens; the client can set max_tokens, or a repetition_penalty",
                  request_id, reply.tokens(),
                  found == LongReply::Finding::kLoop ? ", repeats itself" : "", context_tokens));
}

// One choice on its way.
struct Voice {
  std::shared_ptr<TokenStream> stream;
  std::unique_ptr<Speech> speech;  // of the choice
  ThinkingBudget thinking;
  Choice choice;
  std::optional<ReuseReport> report;  // of the first stream
  double first_token_ms = -1;
  bool ended = false;
  LongReply length;
};

class Reply : public std::enable_shared_from_this<Reply> {
 public:
  Reply(Service* service, http::ExchangePtr exchange, ReplyPlan plan,
        std::unique_ptr<ReplySink> sink)
      : service_(*service),
        exchange_(std::move(exchange)),
        plan_(std::move(plan)),
        sink_(std::move(sink)),
        room_(&service->kept(), exchange_->account()) {}

  std::optional<ApiError> Start();

 private:
  std::optional<ApiError> ParseTools();
  std::optional<ApiError> SubmitFirst();
  std::optional<ApiError> SpellWords();
  std::optional<ApiError> Submit(size_t index);
  void SubmitNext();
  void Listen(Voice& voice);
  std::optional<ApiError> CheckPrompts() const;
  std::optional<ApiError> TakePlan();
  bool Keep(const GeneratedToken& token, size_t text_bytes);
  GenerateRequest MakeRequest(size_t index) const;
  static void Follow(std::span<const TokenId> said, GenerateRequest* request);
  void Wake();
  void Pump();
  void PumpOne(size_t index);
  bool Append(size_t index, std::vector<GeneratedToken> tokens, Delta* delta);
  std::optional<ApiError> Predict();
  bool CloseThinking(size_t index, Delta* delta);
  std::optional<ApiError> StopKindOf(const Voice& voice, const Completion& completion,
                                     StopKind* kind) const;
  void EndOne(size_t index, Completion completion);
  void Complete();
  void Fail(const ApiError& error);
  void CancelAll();
  void Spend(int64_t tokens) const;
  void Trace(const Completion* first, const Usage& usage, const std::string& error) const;
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
  std::vector<TokenId> predicted_;         // by the client
  uint64_t seed_ = 0;
  int64_t begun_ms_ = 0;
  int64_t begun_unix_ns_ = 0;
  ReplyRoom room_;
  SpeechRules rules_;  // of all voices
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

GenerateRequest Reply::MakeRequest(size_t index) const {
  const ReplyOptions& options = plan_.options;
  const size_t choices = static_cast<size_t>(options.choices);
  const Prompt& prompt = plan_.prompts[index / choices];
  GenerateRequest request;
  request.prompt = prompt.ids;
  request.pictures = prompt.pictures;
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
  // Nobody waits for a line of a batch.
  if (!exchange_->request().as_tenant.empty()) {
    request.priority = std::min(request.priority, kBatchPriority);
  }
  request.tenant = plan_.tenant->name;
  request.tenant_weight = plan_.tenant->weight;
  request.salt = plan_.tenant->Namespace(plan_.cache.salt);
  request.pin_ms = plan_.cache.pin_ms;
  request.min_cache_tokens = plan_.cache.min_tokens;
  request.cache_read = plan_.cache.read;
  request.cache_write = plan_.cache.write;
  request.session = plan_.cache.session;
  request.cache_low = plan_.cache.low;
  request.snapkv = options.snapkv;
  request.speculate = options.speculate;
  request.adapter = options.adapter;
  request.prediction = predicted_;
  request.tell_progress = plan_.tell_progress && index == 0;
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
  begun_unix_ns_ = UnixNs();
  if (plan_.thinking_budget == 0 && plan_.format.thinking_begun) {
    // The prompt has opened the reasoning: it closes it, too.
    closed_by_prompt_ = ClosingTokens(*service_.model().tokenizer, *plan_.format.reasoning);
    for (Prompt& prompt : plan_.prompts) {
      prompt.ids.insert(prompt.ids.end(), closed_by_prompt_.begin(), closed_by_prompt_.end());
    }
    plan_.format.thinking_begun = false;
  }
  if (auto error = CheckPrompts()) return error;
  if (auto error = Predict()) return error;
  if (auto error = SpellWords()) return error;
  voices_.resize(plan_.prompts.size() * static_cast<size_t>(plan_.options.choices));
  return Submit(0);
}

// The tokens of the client's prediction: text, whatever it looks like; as many as a reply can have.
std::optional<ApiError> Reply::Predict() {
  const std::string text = std::exchange(plan_.options.prediction, {});
  if (text.empty()) return std::nullopt;
  Prompt predicted;
  const ServedModel& model = service_.model();
  const Status encoded = EncodeText(model, text, {.add_special = false}, Wanted::kWhatFits,
                                    exchange_->account().get(), &predicted);
  if (!encoded.ok()) return ApiError::From(encoded);
  predicted_ = std::move(predicted.ids);
  const auto most = static_cast<size_t>(model.context_tokens);
  if (predicted_.size() > most) predicted_.resize(most);
  return std::nullopt;
}

// Words that the sampler rules out, and those that break repetitions, as tokens.
std::optional<ApiError> Reply::SpellWords() {
  ReplyOptions& options = plan_.options;
  if (!options.bad_words.empty()) {
    auto spellings = service_.token_words().Spellings(options.bad_words);
    if (!spellings.ok()) return ApiError::From(spellings.status());
    options.sampling.bad_words = std::move(*spellings);
  }
  DryParams& dry = options.sampling.dry;
  if (dry.on()) dry.breakers = *service_.token_words().TokensWith(options.dry_breakers);
  return std::nullopt;
}

// What the reply takes, before anything is begun; and how its choices are read.
std::optional<ApiError> Reply::TakePlan() {
  if (auto error = room_.CheckEntries(plan_, service_.model().context_tokens)) return error;
  if (auto error = room_.TakePlan(plan_, sizeof(Voice) + sizeof(Speech))) return error;
  rules_.tokenizer = service_.model().tokenizer;
  rules_.format = &plan_.format;
  rules_.tools = tools_ ? &tools_->root() : nullptr;
  rules_.stops = StopStrings::MakeList(std::exchange(plan_.options.stop, {}));
  rules_.one_call = plan_.one_call;
  rules_.tell_tokens = plan_.tell_tokens;
  rules_.keep_tokens = plan_.keep_tokens;
  return std::nullopt;
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
  // A voice that waits for its turn takes next to nothing.
  voices_[index].speech = std::make_unique<Speech>(rules_, &voices_[index].choice);
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

// `first`: how the first choice ended; null: it has not.
void Reply::Trace(const Completion* first, const Usage& usage, const std::string& error) const {
  TraceSink* const traces = service_.options().traces.get();
  if (traces == nullptr) return;
  const http::Request& request = exchange_->request();
  ReplyTrace trace;
  trace.context = ReadTrace(request);
  trace.request_id = request.id;
  trace.path = request.path;
  trace.model = service_.model().id;
  trace.tenant = plan_.tenant->name;
  trace.begin_unix_ns = begun_unix_ns_;
  trace.total_ns = UnixNs() - begun_unix_ns_;
  trace.error = error;
  if (first != nullptr) {
    trace.Describe(*first);
    trace.reply_tokens = usage.completion_tokens;
  }
  traces->Add(std::move(trace));
}

void Reply::Spend(int64_t tokens) const {
  if (plan_.tenant->quota) plan_.tenant->quota->Spend(tokens, service_.clock().NowMs());
}

std::optional<ApiError> Reply::Start() {
  if (auto error = ParseTools()) return error;
  if (auto error = TakePlan()) return error;
  if (plan_.tenant->quota) {
    const auto refused = plan_.tenant->quota->Begin(service_.clock().NowMs());
    if (refused) return ApiError::OverQuota(*refused);
  }
  if (auto error = SubmitFirst()) return error;
  exchange_->Post([self = shared_from_this()] { self->sink_->Begin(); });
  exchange_->OnClose([self = shared_from_this()] {
    if (!self->over_) self->Trace(nullptr, {}, "the client left");
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
    Spend(voice.report->prompt_tokens - voice.report->used_tokens);
  }
  if (!update.tokens.empty()) Spend(static_cast<int64_t>(update.tokens.size()));
  if (update.computed && voice.report) {
    sink_->OnProgress({.total = voice.report->prompt_tokens,
                       .cached = voice.report->used_tokens,
                       .processed = *update.computed,
                       .ms = service_.clock().NowMs() - begun_ms_});
  }
  if (!update.tokens.empty() && voice.first_token_ms < 0) {
    voice.first_token_ms = static_cast<double>(service_.clock().NowMs() - begun_ms_);
  }
  Delta delta;
  delta.choice = index;
  delta.calls = &voice.choice.calls;
  delta.calls_before = voice.choice.calls.size();
  Speech& speech = *voice.speech;
  // What the engine did after the reasoning was ended does not count.
  if (!speech.over() && Append(index, std::move(update.tokens), &delta)) update.completion.reset();
  if (over_) return;  // it failed
  if (speech.over() && !update.completion) voice.stream->Cancel();
  if (update.completion) speech.Finish(&delta);
  if (!delta.events.empty() || !delta.tokens.empty()) sink_->OnDelta(delta);
  if (update.completion) EndOne(index, std::move(*update.completion));
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
      voice.choice.end = Describe(*rules_.tokenizer, token);
      return false;
    }
    const std::string text = voice.speech->Spell(token);
    if (!Keep(token, text.size())) return false;
    if (!plan_.options.max_tokens) {
      WarnOfLength(exchange_->request().id, voice.length, voice.length.Add(token.chosen.token),
                   service_.model().context_tokens);
    }
    voice.speech->Say(token, text, delta);
    if (voice.speech->over()) return false;
    if (!plan_.thinking_budget) continue;
    const bool spent =
        voice.thinking.Spend(token.chosen.token, voice.speech->thinking(), *plan_.thinking_budget);
    if (spent && CloseThinking(index, delta)) return true;
  }
  return false;
}

// Room for a token and its text. False: there is none, the reply has failed.
bool Reply::Keep(const GeneratedToken& token, size_t text_bytes) {
  auto error = plan_.keep_tokens ? room_.TakeEntries(1 + token.top.size()) : std::nullopt;
  if (!error) error = room_.TakeText(text_bytes);
  if (error) Fail(*error);
  return !error;
}

// Ends the reasoning in the model's place: the reply goes on as another request, whose prompt is
// all that was said and the marker. The cache has the state of all but the marker.
bool Reply::CloseThinking(size_t index, Delta* delta) {
  Voice& voice = voices_[index];
  const ReasoningFormat& reasoning = *plan_.format.reasoning;
  GenerateRequest request = MakeRequest(index);
  request.continues = true;
  const std::vector<TokenId> closing = ClosingTokens(*rules_.tokenizer, reasoning);
  const std::vector<TokenId>& said = voice.thinking.Close(closing);
  request.prompt.insert(request.prompt.end(), said.begin(), said.end());
  request.max_tokens -= static_cast<int32_t>(said.size());
  request.min_tokens = 0;
  Follow(said, &request);
  if (closing.empty() || request.max_tokens <= 0) return false;  // it ends by its length
  auto stream = service_.engine().Submit(std::move(request));
  if (!stream.ok()) {
    Fail(ApiError::FromEngine(stream.status()));
    return true;
  }
  voice.thinking.GoOn();
  voice.stream->Cancel();
  voice.stream = std::move(*stream);
  voice.speech->PutIn(EndOfThinking(reasoning), delta);
  Listen(voice);
  return true;
}

// Why a choice has ended; or that it failed.
std::optional<ApiError> Reply::StopKindOf(const Voice& voice, const Completion& completion,
                                          StopKind* kind) const {
  const Speech& speech = *voice.speech;
  const std::vector<ToolCall>& calls = voice.choice.calls;
  const bool called =
      std::any_of(calls.begin(), calls.end(), [](const ToolCall& call) { return call.complete; });
  // Half a call is none: whoever acts on it should know that it was cut off.
  const bool cut_off = completion.reason == FinishReason::kLength && !called;
  if (!cut_off && (speech.has_called() || (speech.stopped() && called))) {
    *kind = StopKind::kToolCalls;  // whoever made it waits for its result
  } else if (speech.stopped()) {
    *kind = StopKind::kStopString;
  } else if (completion.reason == FinishReason::kFailed) {
    return ApiError::FromEngine(completion.status);
  } else if (completion.reason == FinishReason::kCancelled) {
    return ApiError{503, "the server is shutting down; try another one"};
  } else if (completion.reason == FinishReason::kLength) {
    *kind = StopKind::kLength;
  } else {
    *kind = calls.empty() ? StopKind::kEnd : StopKind::kToolCalls;
  }
  return std::nullopt;
}

void Reply::EndOne(size_t index, Completion completion) {
  Voice& voice = voices_[index];
  voice.ended = true;
  const int64_t total_ms = service_.clock().NowMs() - begun_ms_;
  voice.thinking.Count(voice.report, voice.first_token_ms, static_cast<double>(total_ms),
                       &completion);
  Choice& choice = voice.choice;
  if (const auto error = StopKindOf(voice, completion, &choice.stop)) return Fail(*error);
  if (choice.stop == StopKind::kStopString) choice.matched_stop = voice.speech->stop();
  if (plan_.score_prompt) {
    const Prompt& prompt = plan_.prompts[index / static_cast<size_t>(plan_.options.choices)];
    const Tokenizer& tokenizer = *rules_.tokenizer;
    choice.prompt.push_back(Describe(tokenizer, {{prompt.ids.front(), std::nanf("")}, {}}));
    for (const GeneratedToken& token : completion.prompt) {
      choice.prompt.push_back(Describe(tokenizer, token));
    }
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
    const DraftCount drafts = completion.speculation.total();
    usage.drafts.run += drafts.run;
    usage.drafts.accepted += drafts.accepted;
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
  Trace(&first, usage, "");
  sink_->OnDone(choices, usage, report);
  if (plan_.done) plan_.done(choices.front());
}

void Reply::Fail(const ApiError& error) {
  over_ = true;
  CancelAll();
  Trace(nullptr, {}, error.message);
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
