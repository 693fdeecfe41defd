// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/message_sink.h"

#include <utility>
#include <vector>

#include "api/chat/named_event.h"
#include "base/json_writer.h"

namespace reprise::api::anthropic {
namespace {

using Kind = OutputEvent::Kind;

void WriteMessage(const MessageHead& head, const std::vector<Block>& blocks, const Choice* choice,
                  const Usage& usage, JsonWriter* json) {
  json->Member("id", head.id).Member("type", "message").Member("role", "assistant");
  json->Member("model", head.model).Key("content").BeginArray();
  for (const Block& block : blocks) WriteBlock(block, head, false, json);
  json->EndArray();
  WriteStop(choice, head, json);
  json->Key("usage");
  WriteUsage(usage, head, json);
  json->Key("diagnostics");
  WriteDiagnostics(usage, head, json);
}

class WholeSink final : public ReplySink {
 public:
  WholeSink(http::ExchangePtr exchange, MessageHead head)
      : exchange_(std::move(exchange)), head_(std::move(head)) {}

  void OnDelta(const Delta& delta) override {
    ForEachEvent(delta, [&](const OutputEvent& event, const std::string& id) {
      AddEvent(event, id, &blocks_);
    });
  }
  void OnChoiceEnd(size_t, const Choice&) override {}
  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    http::Response response;
    response.headers.emplace_back("request-id", exchange_->request().id);
    JsonWriter json(&response.body);
    json.BeginObject();
    WriteMessage(head_, blocks_, &choices.front(), usage, &json);
    json.Key("reprise").Raw(report).EndObject();
    exchange_->Respond(std::move(response));
  }
  void OnError(const ApiError& error) override {
    exchange_->Respond(ErrorResponse(error, &exchange_->request()));
  }

 private:
  const http::ExchangePtr exchange_;
  const MessageHead head_;
  std::vector<Block> blocks_;
};

class StreamSink final : public ReplySink {
 public:
  StreamSink(http::ExchangePtr exchange, MessageHead head)
      : exchange_(std::move(exchange)), head_(std::move(head)) {}

  void Begin() override { exchange_->StartStream({{"request-id", exchange_->request().id}}); }

  void OnStart(const ReuseReport& report) override {
    Usage usage;
    usage.prompt_tokens = head_.prompt_tokens;
    usage.cached_tokens = report.used_tokens;
    usage.written_tokens = head_.prompt_tokens - report.used_tokens;  // if there will be room
    Event event("message_start", this);
    event.json.Key("message").BeginObject();
    WriteMessage(head_, {}, nullptr, usage, &event.json);
    event.json.EndObject();
    event.Send();
    Event("ping", this).Send();
  }

  void OnDelta(const Delta& delta) override {
    ForEachEvent(delta, [&](const OutputEvent& event, const std::string& id) {
      const bool open = !blocks_.empty();
      const bool begins = AddEvent(event, id, &blocks_);
      if (begins && open) CloseBlock(blocks_.size() - 2);
      if (begins) OpenBlock();
      SendDelta(event);
    });
  }

  void OnChoiceEnd(size_t, const Choice&) override {
    if (!blocks_.empty()) CloseBlock(blocks_.size() - 1);
  }

  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    Event event("message_delta", this);
    event.json.Key("delta").BeginObject();
    WriteStop(&choices.front(), head_, &event.json);
    event.json.EndObject().Key("usage");
    WriteUsage(usage, head_, &event.json);
    event.json.Key("reprise").Raw(report);
    event.Send();
    Event("message_stop", this).Send();
    exchange_->End();
  }

  void OnError(const ApiError& error) override {
    exchange_->Send("event: error\ndata: " + FormatAnthropic(error, exchange_->request().id) +
                    "\n\n");
    exchange_->End();
  }

 private:
  struct Event : NamedEvent {
    Event(std::string_view name, StreamSink* s) : NamedEvent(name), sink(*s) {}
    void Send() { NamedEvent::Send(sink.exchange_.get()); }
    StreamSink& sink;
  };

  void OpenBlock() {
    Event event("content_block_start", this);
    event.json.Member("index", static_cast<int64_t>(blocks_.size() - 1)).Key("content_block");
    WriteBlock(blocks_.back(), head_, true, &event.json);
    event.Send();
  }

  void SendDelta(const OutputEvent& event) {
    switch (event.kind) {
      case Kind::kContent:
        return SendDelta("text_delta", "text", event.text);
      case Kind::kReasoning:
        if (head_.show_thinking) SendDelta("thinking_delta", "thinking", event.text);
        return;
      case Kind::kArguments:
        return SendDelta("input_json_delta", "partial_json", event.text);
      case Kind::kCallBegin:
      case Kind::kCallEnd:
        return;
    }
  }

  void SendDelta(const char* type, const char* member, const std::string& text) {
    Event event("content_block_delta", this);
    event.json.Member("index", static_cast<int64_t>(blocks_.size() - 1)).Key("delta").BeginObject();
    event.json.Member("type", type).Member(member, text).EndObject();
    event.Send();
  }

  void CloseBlock(size_t index) {
    const Block& block = blocks_[index];
    if (block.kind == Kind::kReasoning) {
      Event event("content_block_delta", this);
      event.json.Member("index", static_cast<int64_t>(index)).Key("delta").BeginObject();
      event.json.Member("type", "signature_delta").Member("signature", SignatureOf(block));
      event.json.EndObject();
      event.Send();
    }
    Event event("content_block_stop", this);
    event.json.Member("index", static_cast<int64_t>(index));
    event.Send();
  }

  const http::ExchangePtr exchange_;
  const MessageHead head_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<ReplySink> MakeWholeSink(http::ExchangePtr exchange, MessageHead head) {
  return std::make_unique<WholeSink>(std::move(exchange), std::move(head));
}

std::unique_ptr<ReplySink> MakeStreamSink(http::ExchangePtr exchange, MessageHead head) {
  return std::make_unique<StreamSink>(std::move(exchange), std::move(head));
}

}  // namespace reprise::api::anthropic
