// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "api/body.h"
#include "api/chat/prompt.h"
#include "api/fields/unsupported.h"
#include "api/openai/params.h"
#include "api/ops/endpoints.h"
#include "base/json_writer.h"
#include "base/utf8.h"

namespace reprise::api::ops {
namespace {

using http::ExchangePtr;

// A chat request as far as its prompt goes.
void ReadConversation(Service* service, Fields* fields, ChatJob* job) {
  openai::ReadMessages(service->options(), fields, job);
  openai::ReadTools(service->options(), fields, job);
  openai::ReadThinking(service->model(), fields, job);
}

// The text of a token; its bytes, where they are only a part of a character.
constexpr size_t kTextBytesPerStep = 16;

void WritePiece(std::string_view bytes, JsonWriter* json) {
  if (IsValidUtf8(bytes)) {
    json->String(bytes);
    return;
  }
  json->BeginArray();
  for (const char byte : bytes) json->Int(static_cast<unsigned char>(byte));
  json->EndArray();
}

// Bytes of the answer to /tokenize for a token: its id, and its piece as JSON writes it. Each of
// the piece's bytes may become a number of up to four characters, or an escape of six.
constexpr size_t kIdBytes = 12;
constexpr size_t kPieceBytes = 24;
constexpr size_t kJsonBytes = 6;

// An answer is paid for before it is written: it may be many times the size of the request. Text
// and body are there together for a moment.
Status TakeText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, Account* account) {
  size_t bytes = 0;
  for (const TokenId id : ids) bytes += tokenizer.TokenBytes(id).size();
  REPRISE_TRY(account->Spend((ids.size() + bytes) / kTextBytesPerStep, "writing the text"));
  return account->TakeAnswer(3 * bytes, "the text");
}

// llama.cpp's request has "content", vLLM's "prompt" or "messages": each gets its own answer.
void Tokenize(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  const Tokenizer& tokenizer = *service->model().tokenizer;
  const bool llama = fields.Find("content") != nullptr;
  bool with_pieces = false;
  fields.Read("with_pieces", &with_pieces);
  std::vector<TokenId> ids;
  if (fields.Find("messages") != nullptr) {
    ChatJob job;
    ReadConversation(service, &fields, &job);
    RefuseUnread(Dialect::kPrompt, service->options(), &fields);
    if (!fields.ok()) return Refuse(exchange, *fields.error());
    auto prompt = RenderChat(service->model(), &job, exchange->account().get());
    if (!prompt.ok()) return Refuse(exchange, ApiError::FromPrompt(prompt.status()));
    ids = std::move(prompt->ids);
    // As the vocabulary has them: one token in all places of a picture.
    std::replace_if(
        ids.begin(), ids.end(), [](TokenId id) { return id < 0; }, service->model().picture_token);
  } else {
    std::string text;
    bool add_special = !llama;
    bool parse_special = true;
    fields.Read(llama ? "content" : "prompt", size_t{1} << 30, &text);
    if (!llama && fields.Find("prompt") == nullptr) {
      fields.Fail("content", "is required (or prompt, or messages)");
    }
    fields.Read("add_special", &add_special);
    fields.Read("add_special_tokens", &add_special);
    fields.Read("parse_special", &parse_special);
    RefuseUnread(Dialect::kOwn, service->options(), &fields);
    if (!fields.ok()) return Refuse(exchange, *fields.error());
    Prompt prompt;
    const Status encoded = EncodeText(service->model(), text, {add_special, parse_special},
                                      Wanted::kAll, exchange->account().get(), &prompt);
    if (!encoded.ok()) return Refuse(exchange, ApiError::From(encoded));
    ids = std::move(prompt.ids);
  }
  size_t bytes = ids.size() * (sizeof(TokenId) + kIdBytes);
  for (const TokenId id : ids) {
    if (with_pieces) bytes += kPieceBytes + kJsonBytes * tokenizer.TokenBytes(id).size();
  }
  const Status room = exchange->account()->TakeAnswer(bytes, "the tokens");
  if (!room.ok()) return Refuse(exchange, ApiError::From(room));
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject();
  if (!llama) {
    json.Member("count", uint64_t{ids.size()});
    json.Member("max_model_len", service->model().context_tokens);
  }
  json.Key("tokens").BeginArray();
  for (const TokenId id : ids) {
    if (!with_pieces) {
      json.Int(id);
      continue;
    }
    json.BeginObject().Member("id", id).Key("piece");
    WritePiece(tokenizer.TokenBytes(id), &json);
    json.EndObject();
  }
  json.EndArray().EndObject();
  exchange->Respond(std::move(response));
}

void Detokenize(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  const JsonValue* tokens = fields.Array("tokens", size_t{1} << 24);
  if (tokens == nullptr && fields.ok()) fields.Fail("tokens", "is required");
  std::vector<TokenId> ids;
  for (size_t i = 0; tokens != nullptr && i < tokens->items().size(); ++i) {
    const JsonValue& id = tokens->items()[i];
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= service->model().vocab_size) {
      fields.Fail("tokens", "must be token ids of the vocabulary");
      break;
    }
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  RefuseUnread(Dialect::kOwn, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  const Status room = TakeText(*service->model().tokenizer, ids, exchange->account().get());
  if (!room.ok()) return Refuse(exchange, ApiError::From(room));
  const std::string text = service->model().tokenizer->Decode(ids, true);
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("content", text).Member("prompt", text).EndObject();
  exchange->Respond(std::move(response));
}

void ApplyTemplate(Service* service, const ExchangePtr& exchange) {
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  ChatJob job;
  ReadConversation(service, &fields, &job);
  RefuseUnread(Dialect::kPrompt, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  const auto prompt = RenderChat(service->model(), &job, exchange->account().get());
  if (!prompt.ok()) return Refuse(exchange, ApiError::FromPrompt(prompt.status()));
  http::Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Member("prompt", prompt->text);
  json.Key("boundaries").BeginArray();
  for (const Boundary& boundary : prompt->boundaries) json.Int(boundary.position);
  json.EndArray().Member("tokens", uint64_t{prompt->ids.size()}).EndObject();
  exchange->Respond(std::move(response));
}

}  // namespace

void AddTextRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* path, void (*handle)(Service*, const ExchangePtr&)) {
    router->Add("POST", path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& e) { handle(service, e); });
  };
  add("/tokenize", Tokenize);
  add("/detokenize", Detokenize);
  add("/apply-template", ApplyTemplate);
}

}  // namespace reprise::api::ops
