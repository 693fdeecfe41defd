// SPDX-License-Identifier: Apache-2.0
#include "api/responses/response_sink.h"

#include <string_view>
#include <utility>
#include <vector>

#include "api/chat/named_event.h"
#include "base/json_writer.h"

namespace reprise::api::responses {
namespace {

using Kind = OutputEvent::Kind;

// Both shapes of the answer collect items alike.
class ResponseSink : public ReplySink {
 public:
  ResponseSink(http::ExchangePtr exchange, ResponseHead head, Keep keep, Started started)
      : exchange_(std::move(exchange)),
        head_(std::move(head)),
        keep_(std::move(keep)),
        started_(std::move(started)) {}

  void OnStart(const ReuseReport&) override {
    if (started_) started_();
  }

  void OnDelta(const Delta& delta) override {
    const std::vector<ReplyToken>* tokens = &delta.tokens;
    ForEachEvent(delta, [&](const OutputEvent& event, const std::string& call_id) {
      if (event.kind == Kind::kCallEnd) {
        items_.back().block.complete = event.complete;
        return;
      }
      const bool same = !items_.empty() && items_.back().block.kind == event.kind;
      const bool begins =
          event.kind == Kind::kCallBegin || (event.kind != Kind::kArguments && !same);
      if (begins) {
        if (!items_.empty()) OnItemEnd(StatusOf(items_.back()));
        items_.push_back(
            MakeOutputItem(head_, items_.size(), {event.kind, "", event.name, call_id}));
        OnItem();
      }
      if (event.kind == Kind::kCallBegin) return;
      items_.back().block.text += event.text;
      // Tokens go with the first text among the events that they stand for.
      const bool tells = head_.logprobs && event.kind == Kind::kContent && tokens != nullptr;
      static const std::vector<ReplyToken> kNone;
      OnText(event, tells ? *tokens : kNone);
      if (!tells) return;
      items_.back().tokens.insert(items_.back().tokens.end(), tokens->begin(), tokens->end());
      tokens = nullptr;
    });
  }

  void OnChoiceEnd(size_t, const Choice& choice) override {
    const bool cut = choice.stop == StopKind::kLength;
    if (!items_.empty()) OnItemEnd(cut ? ItemStatus::kIncomplete : StatusOf(items_.back()));
  }

 protected:
  virtual void OnItem() {}                                                    // began
  virtual void OnText(const OutputEvent&, const std::vector<ReplyToken>&) {}  // went on
  virtual void OnItemEnd(ItemStatus) {}                                       // ended

  // The object, which is kept.
  std::string Finish(const ResponseEnd& end) {
    std::string body;
    JsonWriter json(&body);
    WriteResponse(head_, items_, &end, &json);
    if (keep_ && (end.choice != nullptr || head_.background)) {
      Items items;
      for (const OutputItem& item : items_) {
        // Nobody goes on from half a call.
        if (item.block.complete) items.push_back(ToItem(head_, item));
      }
      keep_(body, std::move(items));
    }
    return body;
  }

  const http::ExchangePtr exchange_;
  const ResponseHead head_;
  std::vector<OutputItem> items_;

 private:
  const Keep keep_;
  const Started started_;
};

class WholeSink final : public ResponseSink {
 public:
  using ResponseSink::ResponseSink;

  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    http::Response response;
    response.body = Finish({&choices.front(), usage, report, {}});
    exchange_->Respond(std::move(response));
  }
  void OnError(const ApiError& error) override {
    if (head_.background) Finish({nullptr, {}, "", error});
    exchange_->Respond(ErrorResponse(error, &exchange_->request()));
  }
};

class StreamSink final : public ResponseSink {
 public:
  using ResponseSink::ResponseSink;

  void Begin() override {
    exchange_->StartStream({});
    for (const char* name : {"response.created", "response.in_progress"}) {
      Event event(name, this);
      event.json.Key("response");
      WriteResponse(head_, {}, nullptr, &event.json);
      event.Send();
    }
  }

  void OnDone(const std::vector<Choice>& choices, const Usage& usage,
              const std::string& report) override {
    End({&choices.front(), usage, report, {}});
  }
  void OnError(const ApiError& error) override { End({nullptr, {}, "", error}); }

 protected:
  void OnItem() override {
    Event event("response.output_item.added", this);
    event.json.Member("output_index", index()).Key("item");
    WriteItem(items_.back(), head_, ItemStatus::kInProgress, &event.json);
    event.Send();
    if (items_.back().block.kind != Kind::kCallBegin) SendPart("response.content_part.added", true);
  }

  void OnText(const OutputEvent& what, const std::vector<ReplyToken>& tokens) override {
    if (head_.IsCustom(items_.back().block)) return;  // its input is known when it is whole
    Event event(NameOf(what.kind, true), this);
    WritePlace(&event);
    event.json.Member("delta", what.text);
    if (what.kind == Kind::kContent) {
      event.json.Key("logprobs");
      WriteLogprobs(tokens, &event.json);
    }
    event.Send();
  }

  void OnItemEnd(ItemStatus status) override {
    const OutputItem& item = items_.back();
    const Kind kind = item.block.kind;
    if (head_.IsCustom(item.block)) {
      const std::string input = UnwrapInput(item.block.text);
      SendInput("delta", "delta", input);
      SendInput("done", "input", input);
      return SendItemDone(status);
    }
    Event event(NameOf(kind, false), this);
    WritePlace(&event);
    event.json.Member(kind == Kind::kCallBegin ? "arguments" : "text", item.block.text);
    if (kind == Kind::kCallBegin) event.json.Member("name", item.block.name);
    if (kind == Kind::kContent) {
      event.json.Key("logprobs");
      WriteLogprobs(item.tokens, &event.json);
    }
    event.Send();
    if (kind != Kind::kCallBegin) SendPart("response.content_part.done", false);
    SendItemDone(status);
  }

 private:
  // An event with its number.
  struct Event : NamedEvent {
    Event(std::string_view name, StreamSink* s) : NamedEvent(name), sink(*s) {
      json.Member("sequence_number", sink.sequence_++);
    }
    void Send() { NamedEvent::Send(sink.exchange_.get()); }
    StreamSink& sink;
  };

  static const char* NameOf(Kind kind, bool delta) {
    switch (kind) {
      case Kind::kReasoning:
        return delta ? "response.reasoning_text.delta" : "response.reasoning_text.done";
      case Kind::kCallBegin:
      case Kind::kArguments:
        return delta ? "response.function_call_arguments.delta"
                     : "response.function_call_arguments.done";
      default:
        return delta ? "response.output_text.delta" : "response.output_text.done";
    }
  }

  uint64_t index() const { return items_.size() - 1; }

  void SendItemDone(ItemStatus status) {
    Event done("response.output_item.done", this);
    done.json.Member("output_index", index()).Key("item");
    WriteItem(items_.back(), head_, status, &done.json);
    done.Send();
  }

  void SendInput(const std::string& what, const char* member, const std::string& input) {
    Event event("response.custom_tool_call_input." + what, this);
    WritePlace(&event);
    event.json.Member(member, input);
    event.Send();
  }

  void WritePlace(Event* event) {
    event->json.Member("item_id", items_.back().id).Member("output_index", index());
    if (items_.back().block.kind != Kind::kCallBegin) event->json.Member("content_index", 0);
  }

  void SendPart(const char* name, bool empty) {
    Event event(name, this);
    WritePlace(&event);
    event.json.Key("part");
    WritePart(items_.back(), head_, empty, &event.json);
    event.Send();
  }

  void End(const ResponseEnd& end) {
    Event event(std::string("response.") + StatusOf(end), this);
    event.json.Key("response").Raw(Finish(end));
    event.Send();
    exchange_->End();
  }

  int sequence_ = 0;
};

}  // namespace

std::unique_ptr<ReplySink> MakeWholeSink(http::ExchangePtr exchange, ResponseHead head, Keep keep,
                                         Started started) {
  return std::make_unique<WholeSink>(std::move(exchange), std::move(head), std::move(keep),
                                     std::move(started));
}

std::unique_ptr<ReplySink> MakeStreamSink(http::ExchangePtr exchange, ResponseHead head, Keep keep,
                                          Started started) {
  return std::make_unique<StreamSink>(std::move(exchange), std::move(head), std::move(keep),
                                      std::move(started));
}

}  // namespace reprise::api::responses
