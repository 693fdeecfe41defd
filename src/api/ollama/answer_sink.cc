// SPDX-License-Identifier: Apache-2.0
#include "api/ollama/answer_sink.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/json_writer.h"

namespace reprise::api::ollama {
namespace {

using Kind = OutputEvent::Kind;

// What one line says.
struct Piece {
  std::string content;
  std::string thinking;
  std::vector<ToolCall> calls;

  // A call whose arguments are no object cannot be told as one; it stays text.
  void Add(const ToolCall& call) {
    if (call.complete) {
      calls.push_back(call);
    } else {
      content += call.name + " " + call.arguments;
    }
  }
  bool empty() const { return content.empty() && thinking.empty() && calls.empty(); }
};

const char* ReasonOf(StopKind stop) { return stop == StopKind::kLength ? "length" : "stop"; }

void WriteHead(const std::string& model, JsonWriter* json) {
  json->BeginObject().Member("model", model).Member("created_at", FormatNow());
}

void WritePiece(const Piece& piece, AnswerShape shape, JsonWriter* json) {
  const bool chat = shape == AnswerShape::kChat;
  if (chat) json->Key("message").BeginObject().Member("role", "assistant");
  json->Member(chat ? "content" : "response", piece.content);
  if (!piece.thinking.empty()) json->Member("thinking", piece.thinking);
  if (!piece.calls.empty()) {
    json->Key("tool_calls").BeginArray();
    for (const ToolCall& call : piece.calls) {
      json->BeginObject().Member("id", call.id).Key("function").BeginObject();
      json->Member("name", call.name).Key("arguments").Raw(call.arguments).EndObject().EndObject();
    }
    json->EndArray();
  }
  if (chat) json->EndObject();
}

int64_t Nanoseconds(double ms) { return static_cast<int64_t>(ms * 1e6); }

void WriteEnd(const Choice& choice, JsonWriter* json) {
  const Completion& completion = choice.completion;
  json->Member("done", true).Member("done_reason", ReasonOf(choice.stop));
  json->Member("total_duration", Nanoseconds(completion.total_ms));
  json->Member("load_duration", 0);
  json->Member("prompt_eval_count", completion.prompt_tokens);
  json->Member("prompt_eval_duration",
               Nanoseconds(completion.first_token_ms - completion.queue_ms));
  json->Member("eval_count", completion.generated_tokens);
  json->Member("eval_duration", Nanoseconds(completion.total_ms - completion.first_token_ms));
}

class WholeSink final : public ReplySink {
 public:
  WholeSink(http::ExchangePtr exchange, std::string model, AnswerShape shape)
      : exchange_(std::move(exchange)), model_(std::move(model)), shape_(shape) {}

  void OnDelta(const Delta&) override {}
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnError(const ApiError& error) override { Refuse(exchange_, error); }
  void OnDone(const std::vector<Choice>& choices, const Usage&,
              const std::string& report) override {
    const Choice& choice = choices.front();
    http::Response response;
    JsonWriter json(&response.body);
    WriteHead(model_, &json);
    Piece piece = {choice.content, choice.reasoning, {}};
    for (const ToolCall& call : choice.calls) piece.Add(call);
    WritePiece(piece, shape_, &json);
    WriteEnd(choice, &json);
    json.Key("reprise").Raw(report).EndObject();
    exchange_->Respond(std::move(response));
  }

 private:
  const http::ExchangePtr exchange_;
  const std::string model_;
  const AnswerShape shape_;
};

class StreamSink final : public ReplySink {
 public:
  StreamSink(http::ExchangePtr exchange, std::string model, AnswerShape shape)
      : exchange_(std::move(exchange)), model_(std::move(model)), shape_(shape) {}

  void Begin() override { exchange_->StartStream({{"Content-Type", "application/x-ndjson"}}); }

  void OnDelta(const Delta& delta) override {
    Piece piece;
    size_t begun = delta.calls_before;
    for (const OutputEvent& event : delta.events) {
      if (event.kind == Kind::kCallBegin) ++begun;
      if (event.kind == Kind::kCallEnd) piece.Add((*delta.calls)[begun - 1]);
      if (event.kind == Kind::kContent) piece.content += event.text;
      if (event.kind == Kind::kReasoning) piece.thinking += event.text;
    }
    if (piece.empty()) return;
    std::string line;
    JsonWriter json(&line);
    WriteHead(model_, &json);
    WritePiece(piece, shape_, &json);
    json.Member("done", false).EndObject();
    exchange_->Send(line + "\n");
  }
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnDone(const std::vector<Choice>& choices, const Usage&,
              const std::string& report) override {
    std::string line;
    JsonWriter json(&line);
    WriteHead(model_, &json);
    WritePiece({}, shape_, &json);
    WriteEnd(choices.front(), &json);
    json.Key("reprise").Raw(report).EndObject();
    exchange_->Send(line + "\n");
    exchange_->End();
  }
  void OnError(const ApiError& error) override {
    exchange_->Send(FormatOllama(error) + "\n");
    exchange_->End();
  }

 private:
  const http::ExchangePtr exchange_;
  const std::string model_;
  const AnswerShape shape_;
};

}  // namespace

std::string FormatTime(int64_t microseconds) {
  const std::time_t seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  std::tm time = {};
  ::gmtime_r(&seconds, &time);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &time);
  std::snprintf(text + size, sizeof(text) - size, ".%06dZ",
                static_cast<int>(microseconds % 1'000'000));
  return text;
}

std::string FormatNow() {
  return FormatTime(std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count());
}

std::unique_ptr<ReplySink> MakeAnswerSink(http::ExchangePtr exchange, std::string model,
                                          AnswerShape shape, bool stream) {
  if (!stream) return std::make_unique<WholeSink>(std::move(exchange), std::move(model), shape);
  return std::make_unique<StreamSink>(std::move(exchange), std::move(model), shape);
}

http::Response AnswerLoaded(const std::string& model, AnswerShape shape) {
  http::Response response;
  JsonWriter json(&response.body);
  WriteHead(model, &json);
  WritePiece({}, shape, &json);
  json.Member("done", true).Member("done_reason", "load").EndObject();
  return response;
}

}  // namespace reprise::api::ollama
