// SPDX-License-Identifier: Apache-2.0
// /v1/embeddings, /api/embed, /api/embeddings.
#include <memory>
#include <string>
#include <utility>

#include "api/adapters/chosen_adapter.h"
#include "api/body.h"
#include "api/fields/unsupported.h"
#include "api/ollama/request.h"
#include "api/vectors/endpoints.h"
#include "api/vectors/rerank.h"
#include "api/vectors/texts.h"
#include "api/vectors/vector_job.h"
#include "base/coding/base64.h"
#include "base/json_writer.h"

namespace reprise::api::vectors {
namespace {

using http::ExchangePtr;

// Keeps each vector as the JSON that it becomes: writing thousands at once would keep everybody
// waiting.
class EmbeddingSink : public VectorSink {
 public:
  EmbeddingSink(ExchangePtr exchange, std::string model, size_t count, int32_t dimensions)
      : exchange_(std::move(exchange)),
        model_(std::move(model)),
        dimensions_(dimensions),
        vectors_(count) {}

  void OnVector(size_t index, std::vector<float> vector) override {
    Write(Normalised(std::move(vector), dimensions_), &vectors_[index]);
  }

 protected:
  virtual void Write(const std::vector<float>& vector, std::string* out) const {
    JsonWriter json(out);
    json.BeginArray();
    for (const float value : vector) json.Float(value);
    json.EndArray();
  }

  const ExchangePtr exchange_;
  const std::string model_;
  const int32_t dimensions_;
  std::vector<std::string> vectors_;  // JSON
};

class OpenAiSink : public EmbeddingSink {
 public:
  OpenAiSink(ExchangePtr exchange, std::string model, size_t count, int32_t dimensions, bool base64)
      : EmbeddingSink(std::move(exchange), std::move(model), count, dimensions), base64_(base64) {}

  void OnDone(const VectorUsage& usage) override {
    http::Response response;
    JsonWriter json(&response.body);
    json.BeginObject().Member("object", "list").Key("data").BeginArray();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      json.BeginObject().Member("object", "embedding").Member("index", uint64_t{i});
      json.Key("embedding").Raw(vectors_[i]).EndObject();
    }
    json.EndArray().Member("model", model_).Key("usage").BeginObject();
    json.Member("prompt_tokens", usage.tokens).Member("total_tokens", usage.tokens);
    json.EndObject().EndObject();
    exchange_->Respond(std::move(response));
  }

 protected:
  void Write(const std::vector<float>& vector, std::string* out) const override {
    if (!base64_) return EmbeddingSink::Write(vector, out);
    *out = '"' + ToBase64(BytesOf(vector)) + '"';
  }

 private:
  const bool base64_;
};

class OllamaSink : public EmbeddingSink {
 public:
  OllamaSink(ExchangePtr exchange, std::string model, size_t count, int32_t dimensions, bool one)
      : EmbeddingSink(std::move(exchange), std::move(model), count, dimensions), one_(one) {}

  void OnDone(const VectorUsage& usage) override {
    http::Response response;
    JsonWriter json(&response.body);
    json.BeginObject();
    if (one_) {
      json.Key("embedding").Raw(vectors_.front()).EndObject();
      return exchange_->Respond(std::move(response));
    }
    json.Member("model", model_).Key("embeddings").BeginArray();
    for (const std::string& vector : vectors_) json.Raw(vector);
    json.EndArray().Member("total_duration", static_cast<int64_t>(usage.total_ms * 1e6));
    json.Member("load_duration", 0).Member("prompt_eval_count", usage.tokens).EndObject();
    exchange_->Respond(std::move(response));
  }

 private:
  const bool one_;  // the older endpoint: one text, one vector
};

// Why the model makes no vectors, if it makes none.
std::optional<ApiError> CheckPooling(const ServedModel& model) {
  if (model.vectors.pooling != Pooling::kNone) return std::nullopt;
  const std::string why =
      !model.vectors.rank_rows.empty() ? "it ranks documents (/v1/rerank)"
      : !model.vectors.why_not.empty()
          ? model.vectors.why_not
          : "its file does not say how; serve it with --pooling, if it is made for that";
  return ApiError{501, "the model '" + model.id + "' makes no vectors of texts: " + why};
}

void ReadDimensions(const ServedModel& model, Fields* fields, int32_t* dimensions) {
  fields->Read("dimensions", 1, model.dim, dimensions);
}

void HandleOpenAi(Service* service, const ExchangePtr& exchange) {
  const ServedModel& model = service->model();
  const Body body = ParseBody(*exchange, model);
  if (body.error) return Refuse(exchange, *body.error);
  if (const auto error = CheckPooling(model)) return Refuse(exchange, *error);
  Fields fields(body.document->root());
  int32_t dimensions = 0;
  ReadDimensions(model, &fields, &dimensions);
  std::string encoding = "float";
  fields.Read("encoding_format", 16, &encoding);
  if (encoding != "float" && encoding != "base64") {
    fields.Fail("encoding_format", "must be float or base64", "unsupported_value");
  }
  VectorJob job;
  job.pooling = model.vectors.pooling;
  job.tenant = service->FindTenant(exchange->request());
  if (fields.ok()) {
    ReadTexts(model, "input", /*cut=*/false, exchange->account().get(), &fields, &job.texts);
  }
  ReplyOptions chosen;
  if (const auto error = ChooseAdapter(model, &fields, &chosen)) return Refuse(exchange, *error);
  job.adapter = std::move(chosen.adapter);
  RefuseUnread(Dialect::kVectors, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  auto sink = std::make_unique<OpenAiSink>(exchange, model.id, job.texts.size(), dimensions,
                                           encoding == "base64");
  if (const auto error = StartVectors(service, exchange, std::move(job), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

void HandleOllama(Service* service, const ExchangePtr& exchange, bool one) {
  const ServedModel& model = service->model();
  const Body body = ParseBody(*exchange);
  if (body.error) return Refuse(exchange, *body.error);
  Fields fields(body.document->root());
  std::string name = ollama::ReadModelName(&fields);
  bool truncate = true;
  fields.Read("truncate", &truncate);
  int32_t dimensions = 0;
  ReadDimensions(model, &fields, &dimensions);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  if (!model.Answers(name)) return Refuse(exchange, ModelNotFound(name, model));
  if (const auto error = CheckPooling(model)) return Refuse(exchange, *error);
  VectorJob job;
  job.pooling = model.vectors.pooling;
  job.tenant = service->FindTenant(exchange->request());
  ReadTexts(model, one ? "prompt" : "input", truncate, exchange->account().get(), &fields,
            &job.texts);
  ReplyOptions chosen;
  if (const auto error = ChooseAdapter(model, name, &fields, &chosen)) {
    return Refuse(exchange, *error);
  }
  job.adapter = std::move(chosen.adapter);
  RefuseUnread(Dialect::kOllamaVectors, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  if (name.empty()) name = model.id;
  auto sink =
      std::make_unique<OllamaSink>(exchange, std::move(name), job.texts.size(), dimensions, one);
  if (const auto error = StartVectors(service, exchange, std::move(job), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

}  // namespace

void AddRoutes(Service* service, http::Router* router) {
  const auto add = [&](const char* path, auto handle) {
    router->Add("POST", path, http::RunOn::kWorker,
                [service, handle](const ExchangePtr& e) { handle(service, e); });
  };
  for (const char* path : {"/v1/embeddings", "/embeddings"}) add(path, HandleOpenAi);
  add("/api/embed", [](Service* s, const ExchangePtr& e) { HandleOllama(s, e, false); });
  add("/api/embeddings", [](Service* s, const ExchangePtr& e) { HandleOllama(s, e, true); });
  for (const char* path : {"/v1/rerank", "/rerank", "/v2/rerank"}) add(path, HandleRerank);
}

}  // namespace reprise::api::vectors
