// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "api/adapters/chosen_adapter.h"
#include "api/body.h"
#include "api/chat/reply.h"
#include "api/fields/unsupported.h"
#include "api/llamacpp/infill.h"
#include "api/openai/endpoints.h"
#include "api/openai/format.h"
#include "api/openai/output_rules.h"
#include "api/openai/params.h"
#include "api/openai/prompts.h"

namespace reprise::api::openai {
namespace {

constexpr int kTokensDefault = 16;  // as OpenAI has it

struct CompletionOptions : AnswerOptions {
  bool echo = false;
};

// Both shapes of the answer write choices alike.
class CompletionSink : public ReplySink {
 public:
  CompletionSink(http::ExchangePtr exchange, std::string model, const CompletionOptions& options,
                 std::vector<std::string> echoes, size_t choice_count)
      : exchange_(std::move(exchange)),
        model_(std::move(model)),
        options_(options),
        echoes_(std::move(echoes)),
        offsets_(choice_count, 0) {}

 protected:
  const std::string& EchoOf(size_t choice) const {
    static const std::string kNone;
    if (echoes_.empty()) return kNone;
    return echoes_[choice / (offsets_.size() / echoes_.size())];
  }

  void WriteHead(JsonWriter* json) const {
    json->BeginObject().Member("id", MakeId("cmpl-", exchange_->request()));
    json->Member("object", "text_completion").Member("created", created_);
    json->Member("model", model_).Member("system_fingerprint", "reprise");
  }

  void WriteChoice(size_t index, std::string_view text, const std::vector<ReplyToken>& tokens,
                   const char* finish, JsonWriter* json) {
    json->BeginObject().Member("index", uint64_t{index}).Member("text", text);
    if (options_.logprobs) {
      WriteCompletionLogprobs(tokens, &offsets_[index], json);
    } else {
      json->Key("logprobs").Null();
    }
    if (options_.token_ids) WriteTokenIds(tokens, json);
    json->Key("finish_reason");
    finish == nullptr ? json->Null() : json->String(finish);
    json->EndObject();
  }

  const http::ExchangePtr exchange_;
  const int64_t created_ = NowSeconds();  // the same in all chunks
  const std::string model_;
  const CompletionOptions options_;
  const std::vector<std::string> echoes_;  // one a prompt, or none
  std::vector<int64_t> offsets_;           // of each choice's text so far, in characters
};

class WholeCompletion : public CompletionSink {
 public:
  using CompletionSink::CompletionSink;

  void OnDelta(const Delta&) override {}
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnError(const ApiError& error) override {
    exchange_->Respond(ErrorResponse(error, &exchange_->request()));
  }
  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    http::Response response;
    JsonWriter json(&response.body);
    WriteHead(&json);
    json.Key("choices").BeginArray();
    for (size_t i = 0; i < choices.size(); ++i) {
      std::vector<ReplyToken> tokens = choices[i].prompt;
      tokens.insert(tokens.end(), choices[i].tokens.begin(), choices[i].tokens.end());
      if (choices[i].end) tokens.push_back(*choices[i].end);
      WriteChoice(i, EchoOf(i) + choices[i].content, tokens, FinishName(choices[i].stop), &json);
    }
    json.EndArray();
    WriteUsage(usage, &json);
    WriteTimings(choices.front().completion, &json);
    json.Key("reprise").Raw(report).EndObject();
    exchange_->Respond(std::move(response));
  }
};

class StreamedCompletion : public CompletionSink {
 public:
  using CompletionSink::CompletionSink;

  void Begin() override {
    exchange_->StartStream({});
    for (size_t i = 0; i < offsets_.size() && !echoes_.empty(); ++i) {
      Send(i, EchoOf(i), {}, nullptr, nullptr);
    }
  }
  void OnDelta(const Delta& delta) override {
    std::string text;
    for (const OutputEvent& event : delta.events) text += event.text;
    Send(delta.choice, text, delta.tokens, nullptr, nullptr);
  }
  void OnChoiceEnd(size_t index, const Choice& choice) override {
    FlushEnd({});
    ended_ = index;
    end_name_ = FinishName(choice.stop);
    end_tokens_.clear();
    if (choice.end) end_tokens_.push_back(*choice.end);
  }
  void OnProgress(const Progress& progress) override {
    Send(0, "", {}, nullptr, [&](JsonWriter* json) { WriteProgress(progress, json); });
  }
  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    const Rest rest = [&](JsonWriter* json) {
      WriteTimings(choices.front().completion, json);
      json->Key("reprise").Raw(report);
    };
    FlushEnd(options_.include_usage ? Rest() : rest);
    if (options_.include_usage) {
      std::string chunk;
      JsonWriter json(&chunk);
      WriteHead(&json);
      json.Key("choices").BeginArray().EndArray();
      WriteUsage(usage, &json);
      rest(&json);
      json.EndObject();
      exchange_->Send(Event(chunk));
    }
    exchange_->Send("data: [DONE]\n\n");
    exchange_->End();
  }
  void OnError(const ApiError& error) override {
    exchange_->Send(Event(FormatOpenAi(error)));
    exchange_->End();
  }

 private:
  using Rest = std::function<void(JsonWriter*)>;  // writes the last members of a chunk

  void FlushEnd(const Rest& rest) {
    if (end_name_ == nullptr) return;
    Send(ended_, "", end_tokens_, end_name_, rest);
    end_name_ = nullptr;
  }
  void Send(size_t choice, std::string_view text, const std::vector<ReplyToken>& tokens,
            const char* finish, const Rest& rest) {
    std::string chunk;
    JsonWriter json(&chunk);
    WriteHead(&json);
    json.Key("choices").BeginArray();
    WriteChoice(choice, text, tokens, finish, &json);
    json.EndArray();
    if (options_.include_usage) json.Key("usage").Null();
    if (rest) rest(&json);
    json.EndObject();
    exchange_->Send(Event(chunk));
  }

  size_t ended_ = 0;
  const char* end_name_ = nullptr;
  std::vector<ReplyToken> end_tokens_;  // of that choice: the one that ended it
};

void ReadOptions(Fields* fields, CompletionOptions* options, ReplyOptions* reply) {
  ReadAnswerOptions(fields, options);
  fields->Read("echo", &options->echo);
  int32_t logprobs = -1;
  fields->Read("n_probs", 0, 5, &logprobs);  // llama.cpp's name
  if (logprobs == 0) logprobs = -1;
  fields->Read("logprobs", 0, 5, &logprobs);
  options->logprobs = logprobs >= 0;
  reply->logprobs = logprobs;
  if (options->echo && options->logprobs && options->stream) {
    fields->Fail("echo", "together with logprobs is not supported in a stream",
                 "unsupported_value");
  }
  int32_t best_of = reply->choices;
  fields->Read("best_of", 0, 20, &best_of);
  if (best_of != reply->choices) fields->Fail("best_of", "must be equal to n");
  if (fields->Find("max_tokens") == nullptr && !reply->max_tokens) {
    reply->max_tokens = kTokensDefault;
  }
}

// The prompts, or what lies before a suffix.
void ReadAllPrompts(const ServedModel& model, bool with_text, Account* account, Fields* fields,
                    ReplyPlan* plan) {
  const JsonValue* text = fields->Find("prompt");
  const bool one = text != nullptr && text->is_string();
  Prompt prompt;
  if (llamacpp::ReadSuffix(model, one ? text->as_string() : std::string_view(), account, fields,
                           &plan->options, &prompt)) {
    if (!one) return fields->Fail("suffix", "needs one prompt, a string");
    if (with_text) prompt.text = std::string(text->as_string());
    plan->prompts.push_back(std::move(prompt));
  } else if (fields->ok()) {
    ReadPrompts(model, with_text, account, fields, &plan->prompts);
  }
}

}  // namespace

void HandleCompletion(Service* service, const http::ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange, service->model());
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  fields.SetDialect(Dialect::kCompletions);
  ReplyPlan plan;
  CompletionOptions options;
  ReadReplyOptions(service->options(), service->model().vocab_size, &fields, &plan.options);
  ReadOptions(&fields, &options, &plan.options);
  ReadAnswerRule(&fields, &plan.options.rule);
  ReadCacheControl(&fields, &plan.cache);
  if (fields.ok()) {
    ReadAllPrompts(service->model(), options.echo, exchange->account().get(), &fields, &plan);
  }
  if (const auto error = ChooseAdapter(service->model(), &fields, &plan.options)) {
    return Refuse(exchange, *error);
  }
  RefuseUnread(Dialect::kCompletions, service->options(), &fields);
  plan.passed_fields = fields.passed();
  if (fields.ok() &&
      plan.prompts.size() * static_cast<size_t>(plan.options.choices) > kPromptsMax) {
    fields.Fail("n", "times the number of prompts must be at most " + std::to_string(kPromptsMax));
  }
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  plan.tenant = service->FindTenant(exchange->request());
  if (auto error = Constrain(service, "", exchange->account().get(), &plan)) {
    return Refuse(exchange, *error);
  }
  plan.tell_tokens = options.wants_tokens();
  plan.keep_tokens = plan.tell_tokens && !options.stream;
  plan.tell_progress = options.progress && options.stream;
  plan.score_prompt = options.echo && options.logprobs;
  std::vector<std::string> echoes;
  if (options.echo) {
    for (Prompt& prompt : plan.prompts) echoes.push_back(std::move(prompt.text));
  }
  const size_t choices = plan.prompts.size() * static_cast<size_t>(plan.options.choices);
  const std::string name = AnsweringName(service->model(), plan.options);
  std::unique_ptr<ReplySink> sink;
  if (options.stream) {
    sink =
        std::make_unique<StreamedCompletion>(exchange, name, options, std::move(echoes), choices);
  } else {
    sink = std::make_unique<WholeCompletion>(exchange, name, options, std::move(echoes), choices);
  }
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

void AddRoutes(Service* service, http::Router* router) {
  for (const char* prefix : {"/v1", ""}) {
    const std::string base = prefix;
    router->Add("POST", base + "/chat/completions", http::RunOn::kWorker,
                [service](const http::ExchangePtr& e) { HandleChat(service, e); });
    router->Add("POST", base + "/completions", http::RunOn::kWorker,
                [service](const http::ExchangePtr& e) { HandleCompletion(service, e); });
  }
}

}  // namespace reprise::api::openai
