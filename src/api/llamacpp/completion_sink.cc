// SPDX-License-Identifier: Apache-2.0
#include "api/llamacpp/completion_sink.h"

#include <utility>

#include "api/chat/report.h"
#include "base/json_writer.h"

namespace reprise::api::llamacpp {
namespace {

void WriteTokens(const std::vector<ReplyToken>& tokens, JsonWriter* json) {
  json->Key("tokens").BeginArray();
  for (const ReplyToken& token : tokens) json->Int(token.id);
  json->EndArray();
}

const char* StopTypeOf(StopKind stop) {
  switch (stop) {
    case StopKind::kLength:
      return "limit";
    case StopKind::kStopString:
      return "word";
    default:
      return "eos";
  }
}

// What the last object says besides its content.
void WriteEnd(const Choice& choice, const std::string& model, JsonWriter* json) {
  const Completion& completion = choice.completion;
  json->Member("model", model).Member("stop", true).Member("stop_type", StopTypeOf(choice.stop));
  json->Member("stopping_word", choice.matched_stop).Member("truncated", false);
  json->Member("has_new_line", choice.content.find('\n') != std::string::npos);
  json->Member("tokens_predicted", completion.generated_tokens);
  json->Member("tokens_evaluated", completion.prompt_tokens);
  json->Member("tokens_cached", completion.prompt_tokens + completion.generated_tokens);
  WriteTimings(completion, json);
}

class CompletionSink : public ReplySink {
 public:
  CompletionSink(http::ExchangePtr exchange, std::string model, bool return_tokens)
      : exchange_(std::move(exchange)), model_(std::move(model)), return_tokens_(return_tokens) {}

 protected:
  void WriteContent(size_t index, std::string_view content, const std::vector<ReplyToken>& tokens,
                    JsonWriter* json) const {
    json->BeginObject().Member("index", uint64_t{index}).Member("content", content);
    WriteTokens(return_tokens_ ? tokens : std::vector<ReplyToken>(), json);
    json->Member("id_slot", -1);
  }

  const http::ExchangePtr exchange_;
  const std::string model_;
  const bool return_tokens_;
};

class WholeSink final : public CompletionSink {
 public:
  WholeSink(http::ExchangePtr exchange, std::string model, bool return_tokens, bool list)
      : CompletionSink(std::move(exchange), std::move(model), return_tokens), list_(list) {}

  void OnDelta(const Delta&) override {}
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnError(const ApiError& error) override { Refuse(exchange_, error); }
  void OnDone(const std::vector<Choice>& choices, const Usage&,
              const std::string& report) override {
    http::Response response;
    JsonWriter json(&response.body);
    if (list_) json.BeginArray();
    for (size_t i = 0; i < choices.size(); ++i) {
      WriteContent(i, choices[i].content, choices[i].tokens, &json);
      WriteEnd(choices[i], model_, &json);
      if (i == 0) json.Key("reprise").Raw(report);
      json.EndObject();
    }
    if (list_) json.EndArray();
    exchange_->Respond(std::move(response));
  }

 private:
  const bool list_;
};

class StreamSink final : public CompletionSink {
 public:
  using CompletionSink::CompletionSink;

  void Begin() override { exchange_->StartStream({}); }
  void OnProgress(const Progress& progress) override {
    std::string event = "data: ";
    JsonWriter json(&event);
    WriteContent(0, "", {}, &json);
    json.Member("stop", false);
    WriteProgress(progress, &json);
    json.EndObject();
    exchange_->Send(event + "\n\n");
  }
  void OnDelta(const Delta& delta) override {
    std::string text;
    for (const OutputEvent& event : delta.events) text += event.text;
    std::string event = "data: ";
    JsonWriter json(&event);
    WriteContent(delta.choice, text, delta.tokens, &json);
    json.Member("stop", false).EndObject();
    exchange_->Send(event + "\n\n");
  }
  void OnChoiceEnd(size_t index, const Choice& choice) override {
    std::string event = "data: ";
    JsonWriter json(&event);
    WriteContent(index, "", {}, &json);
    WriteEnd(choice, model_, &json);
    json.EndObject();
    exchange_->Send(event + "\n\n");
  }
  void OnDone(const std::vector<Choice>&, const Usage&, const std::string&) override {
    exchange_->End();
  }
  void OnError(const ApiError& error) override {
    exchange_->Send("data: " + FormatOpenAi(error) + "\n\n");
    exchange_->End();
  }
};

}  // namespace

std::unique_ptr<ReplySink> MakeCompletionSink(http::ExchangePtr exchange, std::string model,
                                              bool return_tokens, bool stream, bool whole_list) {
  if (stream) {
    return std::make_unique<StreamSink>(std::move(exchange), std::move(model), return_tokens);
  }
  return std::make_unique<WholeSink>(std::move(exchange), std::move(model), return_tokens,
                                     whole_list);
}

}  // namespace reprise::api::llamacpp
