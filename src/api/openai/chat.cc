// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "api/adapters/chosen_adapter.h"
#include "api/body.h"
#include "api/chat/next_turn.h"
#include "api/chat/prompt.h"
#include "api/chat/reply.h"
#include "api/fields/unsupported.h"
#include "api/openai/endpoints.h"
#include "api/openai/format.h"
#include "api/openai/params.h"

namespace reprise::api::openai {
namespace {

void WriteCall(const ToolCall& call, JsonWriter* json) {
  json->Member("id", call.id).Member("type", "function").Key("function").BeginObject();
  json->Member("name", call.name).Member("arguments", call.arguments).EndObject();
}

// The answer in one piece.
class WholeChat : public ReplySink {
 public:
  WholeChat(http::ExchangePtr exchange, std::string model, const AnswerOptions& options)
      : exchange_(std::move(exchange)), model_(std::move(model)), options_(options) {}

  void OnDelta(const Delta&) override {}
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnError(const ApiError& error) override {
    exchange_->Respond(ErrorResponse(error, &exchange_->request()));
  }
  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    http::Response response;
    JsonWriter json(&response.body);
    json.BeginObject().Member("id", MakeId("chatcmpl-", exchange_->request()));
    json.Member("object", "chat.completion").Member("created", NowSeconds());
    json.Member("model", model_).Member("system_fingerprint", "reprise");
    json.Key("choices").BeginArray();
    for (size_t i = 0; i < choices.size(); ++i) WriteChoice(i, choices[i], &json);
    json.EndArray();
    WriteUsage(usage, &json);
    WriteTimings(choices.front().completion, &json);
    json.Key("reprise").Raw(report).EndObject();
    exchange_->Respond(std::move(response));
  }

 private:
  void WriteChoice(size_t index, const Choice& choice, JsonWriter* json) const {
    json->BeginObject().Member("index", uint64_t{index}).Key("message").BeginObject();
    json->Member("role", "assistant").Key("content");
    choice.content.empty() && !choice.calls.empty() ? json->Null() : json->String(choice.content);
    json->Key("refusal").Null();
    if (!choice.reasoning.empty() && options_.show_reasoning) {
      json->Member("reasoning_content", choice.reasoning);
    }
    if (!choice.calls.empty()) {
      json->Key("tool_calls").BeginArray();
      for (const ToolCall& call : choice.calls) {
        json->BeginObject();
        WriteCall(call, json);
        json->EndObject();
      }
      json->EndArray();
    }
    json->EndObject();
    if (options_.logprobs) {
      WriteChatLogprobs(choice.tokens, json);
    } else {
      json->Key("logprobs").Null();
    }
    if (options_.token_ids) WriteTokenIds(choice.tokens, json);
    json->Member("finish_reason", FinishName(choice.stop)).EndObject();
  }

  const http::ExchangePtr exchange_;
  const std::string model_;
  const AnswerOptions options_;
};

// The answer as server-sent events.
class StreamedChat : public ReplySink {
 public:
  StreamedChat(http::ExchangePtr exchange, const std::string& model, const AnswerOptions& options,
               size_t choice_count)
      : exchange_(std::move(exchange)), options_(options), choice_count_(choice_count) {
    JsonWriter json(&head_);
    json.BeginObject().Member("id", MakeId("chatcmpl-", exchange_->request()));
    json.Member("object", "chat.completion.chunk").Member("created", NowSeconds());
    json.Member("model", model).Member("system_fingerprint", "reprise");
  }

  void Begin() override {
    exchange_->StartStream({});
    for (size_t i = 0; i < choice_count_; ++i) {
      std::string delta;
      JsonWriter json(&delta);
      json.BeginObject().Member("role", "assistant").Member("content", "").EndObject();
      Send(Chunk(i, delta, nullptr, nullptr));
    }
  }

  void OnDelta(const Delta& delta) override {
    // Tokens go with the first of the events they stand for; without one, with an empty delta.
    const std::vector<ReplyToken>* tokens = delta.tokens.empty() ? nullptr : &delta.tokens;
    std::string out;
    size_t call = delta.calls_before;
    for (const OutputEvent& event : delta.events) {
      if (event.kind == OutputEvent::Kind::kCallEnd) continue;
      if (event.kind == OutputEvent::Kind::kReasoning && !options_.show_reasoning) continue;
      if (event.kind == OutputEvent::Kind::kCallBegin) ++call;
      out += Event(Chunk(delta.choice, FormatEvent(event, *delta.calls, call), tokens, nullptr));
      tokens = nullptr;
    }
    if (tokens != nullptr) out += Event(Chunk(delta.choice, "{}", tokens, nullptr));
    exchange_->Send(std::move(out));
  }

  void OnChoiceEnd(size_t index, const Choice& choice) override {
    FlushEnd(nullptr);
    ended_ = index;
    end_name_ = FinishName(choice.stop);
  }

  void OnProgress(const Progress& progress) override {
    std::string chunk = Chunk(0, "{}", nullptr, nullptr);
    chunk.pop_back();
    Send(chunk + "," + Member([&](JsonWriter* json) { WriteProgress(progress, json); }) + "}");
  }

  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    const std::string rest =
        Member([&](JsonWriter* json) { WriteTimings(choices.front().completion, json); }) +
        ",\"reprise\":" + report + "}";
    FlushEnd(options_.include_usage ? nullptr : &rest);
    if (options_.include_usage) {
      Send(head_ + ",\"choices\":[]," + Member([&](JsonWriter* json) { WriteUsage(usage, json); }) +
           "," + rest);
    }
    exchange_->Send("data: [DONE]\n\n");
    exchange_->End();
  }

  void OnError(const ApiError& error) override {
    Send(FormatOpenAi(error));
    exchange_->End();
  }

 private:
  void Send(const std::string& json) { exchange_->Send(Event(json)); }

  // "name": value, as `write` writes it.
  template <typename Write>
  static std::string Member(const Write& write) {
    std::string text;
    JsonWriter json(&text);
    write(&json);
    return text;
  }

  // `rest`: the last members of the last chunk, and its end.
  void FlushEnd(const std::string* rest) {
    if (end_name_ == nullptr) return;
    std::string chunk = Chunk(ended_, "{}", nullptr, end_name_);
    if (rest != nullptr) {
      chunk.pop_back();
      chunk += "," + *rest;
    }
    Send(chunk);
    end_name_ = nullptr;
  }

  std::string Chunk(size_t choice, const std::string& delta, const std::vector<ReplyToken>* tokens,
                    const char* finish) const {
    std::string chunk = head_;
    chunk += ",\"choices\":[";
    JsonWriter json(&chunk);
    json.BeginObject().Member("index", uint64_t{choice}).Key("delta").Raw(delta);
    if (options_.logprobs && tokens != nullptr) {
      WriteChatLogprobs(*tokens, &json);
    } else {
      json.Key("logprobs").Null();
    }
    if (options_.token_ids && tokens != nullptr) WriteTokenIds(*tokens, &json);
    json.Key("finish_reason");
    finish == nullptr ? json.Null() : json.String(finish);
    json.EndObject();
    chunk += options_.include_usage ? "],\"usage\":null}" : "]}";
    return chunk;
  }

  // `begun`: how many calls have begun; the last of them is the one that arguments belong to.
  static std::string FormatEvent(const OutputEvent& event, const std::vector<ToolCall>& calls,
                                 size_t begun) {
    std::string delta;
    JsonWriter json(&delta);
    json.BeginObject();
    if (event.kind == OutputEvent::Kind::kContent) {
      json.Member("content", event.text);
    } else if (event.kind == OutputEvent::Kind::kReasoning) {
      json.Member("reasoning_content", event.text);
    } else {
      json.Key("tool_calls").BeginArray().BeginObject().Member("index", uint64_t{begun - 1});
      if (event.kind == OutputEvent::Kind::kCallBegin) {
        WriteCall({calls[begun - 1].id, event.name, ""}, &json);
      } else {
        json.Key("function").BeginObject().Member("arguments", event.text).EndObject();
      }
      json.EndObject().EndArray();
    }
    json.EndObject();
    return delta;
  }

  const http::ExchangePtr exchange_;
  const AnswerOptions options_;
  const size_t choice_count_;
  std::string head_;  // of every chunk, open
  size_t ended_ = 0;
  const char* end_name_ = nullptr;  // of a choice whose end is not told yet
};

// Whether the answer shows the reasoning: include_reasoning, reasoning.exclude, and the word
// "hidden" of reasoning_format. Shown, it always stands in reasoning_content.
void ReadShownReasoning(Fields* fields, AnswerOptions* options) {
  fields->Read("include_reasoning", &options->show_reasoning);
  std::string format;
  fields->Read("reasoning_format", 32, &format);
  if (format == "hidden") options->show_reasoning = false;
  if (format == "none" || format == "raw") fields->Pass("reasoning_format");
  const JsonValue* reasoning = fields->Object("reasoning");
  const JsonValue* exclude = reasoning != nullptr ? reasoning->Find("exclude") : nullptr;
  if (exclude != nullptr && exclude->is_bool() && exclude->as_bool()) {
    options->show_reasoning = false;
  }
}

void ReadChatOptions(Fields* fields, AnswerOptions* options, ReplyOptions* reply) {
  ReadAnswerOptions(fields, options);
  fields->Read("logprobs", &options->logprobs);
  int32_t top = -1;
  fields->Read("top_logprobs", 0, 20, &top);
  if (top > 0 && !options->logprobs) fields->Fail("top_logprobs", "needs logprobs: true");
  int32_t probabilities = 0;
  fields->Read("n_probs", 0, 20, &probabilities);  // llama.cpp's name for both
  if (probabilities > 0 && !options->logprobs) {
    options->logprobs = true;
    top = probabilities;
  }
  if (options->logprobs) reply->logprobs = std::max(0, top);
  ReadShownReasoning(fields, options);
  int32_t best_of = reply->choices;
  fields->Read("best_of", 0, 20, &best_of);
  if (best_of != reply->choices) fields->Fail("best_of", "must be equal to n", "unsupported_value");
  bool echo = false;
  fields->Read("echo", &echo);
  if (echo) fields->Fail("echo", "is not supported in a chat", "unsupported_value");
}

}  // namespace

void HandleChat(Service* service, const http::ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange, service->model());
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  fields.SetDialect(Dialect::kChat);
  ChatJob job;
  AnswerOptions options;
  ReadMessages(service->options(), &fields, &job);
  ReadTools(service->options(), &fields, &job);
  ReadReplyOptions(service->options(), service->model().vocab_size, &fields, &job.options);
  ReadChatOptions(&fields, &options, &job.options);
  ReadCacheControl(&fields, &job.cache);
  ReadThinking(service->model(), &fields, &job);
  if (const auto error = ChooseAdapter(service->model(), &fields, &job.options)) {
    return Refuse(exchange, *error);
  }
  RefuseUnread(Dialect::kChat, service->options(), &fields);
  NotePassed(fields, &job);
  if (!fields.ok()) return Refuse(exchange, *fields.error());

  auto prompt = RenderChat(service->model(), &job, exchange->account().get(), Wanted::kWhatFits);
  if (!prompt.ok()) return Refuse(exchange, ApiError::FromPrompt(prompt.status()));
  ReplyPlan plan;
  const Tenant* tenant = service->FindTenant(exchange->request());
  if (auto error =
          PlanReply(service, job, std::move(*prompt), tenant, exchange->account().get(), &plan)) {
    return Refuse(exchange, *error);
  }
  plan.tell_tokens = options.wants_tokens();
  plan.keep_tokens = plan.tell_tokens && !options.stream;
  plan.tell_progress = options.progress && options.stream;
  const size_t choices = static_cast<size_t>(job.options.choices);
  if (choices == 1) {
    plan.done = PrepareNextTurn(service, *plan.tenant, std::move(job));
  }
  const std::string name = AnsweringName(service->model(), plan.options);
  std::unique_ptr<ReplySink> sink;
  if (options.stream) {
    sink = std::make_unique<StreamedChat>(exchange, name, options, choices);
  } else {
    sink = std::make_unique<WholeChat>(exchange, name, options);
  }
  if (auto error = StartReply(service, exchange, std::move(plan), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

}  // namespace reprise::api::openai
