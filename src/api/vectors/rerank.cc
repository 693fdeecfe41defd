// SPDX-License-Identifier: Apache-2.0
#include "api/adapters/chosen_adapter.h"
#include "api/vectors/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "api/body.h"
#include "api/fields/unsupported.h"
#include "api/openai/format.h"
#include "api/vectors/texts.h"
#include "api/vectors/vector_job.h"
#include "base/json_writer.h"

namespace reprise::api::vectors {
namespace {

constexpr size_t kTextBytesMax = size_t{32} << 20;

struct RankRequest {
  std::string query;
  std::vector<std::string> documents;
  size_t top = SIZE_MAX;
  bool show_documents = false;
};

// How well a document answers, in [0, 1], from the vector of it and the query.
float Score(const std::vector<float>& rows, const std::vector<float>& vector) {
  double products[2] = {0, 0};
  const size_t labels = rows.size() / vector.size();
  for (size_t label = 0; label < labels; ++label) {
    for (size_t i = 0; i < vector.size(); ++i) {
      products[label] += double{rows[label * vector.size() + i]} * double{vector[i]};
    }
  }
  // With one row the other is zero: a softmax over two is a sigmoid of their difference.
  return static_cast<float>(1 / (1 + std::exp(products[1] - products[0])));
}

class RankSink : public VectorSink {
 public:
  RankSink(http::ExchangePtr exchange, const ServedModel& model, RankRequest request)
      : exchange_(std::move(exchange)),
        model_(model),
        request_(std::move(request)),
        scores_(request_.documents.size()) {}

  void OnVector(size_t index, std::vector<float> vector) override {
    scores_[index] = Score(model_.vectors.rank_rows, vector);
  }

  void OnDone(const VectorUsage& usage) override {
    std::vector<size_t> order(scores_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores_[a] > scores_[b]; });
    order.resize(std::min(order.size(), request_.top));
    http::Response response;
    JsonWriter json(&response.body);
    json.BeginObject().Member("id", openai::MakeId("rerank-", exchange_->request()));
    json.Member("model", model_.id).Member("object", "list").Key("usage").BeginObject();
    json.Member("prompt_tokens", usage.tokens).Member("total_tokens", usage.tokens);
    json.Key("prompt_tokens_details").BeginObject().Member("cached_tokens", usage.cached_tokens);
    json.EndObject().EndObject().Key("results").BeginArray();
    for (const size_t index : order) {
      json.BeginObject().Member("index", uint64_t{index});
      json.Member("relevance_score", scores_[index]);
      if (request_.show_documents) {
        json.Key("document").BeginObject().Member("text", request_.documents[index]).EndObject();
      }
      json.EndObject();
    }
    json.EndArray().EndObject();
    exchange_->Respond(std::move(response));
  }

 private:
  const http::ExchangePtr exchange_;
  const ServedModel& model_;
  const RankRequest request_;
  std::vector<float> scores_;
};

RankRequest ReadRequest(Fields* fields) {
  RankRequest request;
  for (const char* name : {"truncate_prompt_tokens", "max_tokens_per_doc", "max_chunks_per_doc"}) {
    if (fields->Find(name) != nullptr) {
      fields->Fail(name, "is not supported: documents are never shortened", "unsupported_value");
    }
  }
  fields->Read("query", kTextBytesMax, &request.query);
  if (request.query.empty()) fields->Fail("query", "is required");
  int64_t top = 0;
  fields->Read("top_n", 1, INT32_MAX, &top);
  if (top > 0) request.top = static_cast<size_t>(top);
  fields->Read("return_documents", &request.show_documents);
  const JsonValue* documents = fields->Array("documents", kTextsMax);
  if (documents == nullptr || documents->items().empty()) {
    fields->Fail("documents", "is required: the texts to rank");
    return request;
  }
  for (size_t i = 0; i < documents->items().size() && fields->ok(); ++i) {
    const JsonValue& document = documents->items()[i];
    const JsonValue* text = document.is_object() ? document.Find("text") : &document;
    if (text == nullptr || !text->is_string()) {
      fields->Fail(fmt::format("documents[{}]", i), "must be a text, or an object with one");
    } else {
      request.documents.emplace_back(text->as_string());
    }
  }
  return request;
}

// The model's prompt with query and document in their places; only the prompt can be control. One
// that cannot fit is read no further than that.
Status Encode(const ServedModel& model, const std::string& query, const std::string& document,
              EncodeMeter* meter, std::vector<TokenId>* ids) {
  std::string_view rest = model.vectors.rank_prompt;
  std::string text;
  std::vector<TextRange> data;
  for (;;) {
    const size_t place = std::min(rest.find("{query}"), rest.find("{document}"));
    text += rest.substr(0, place);
    if (place == std::string_view::npos) break;
    const bool asks = rest.substr(place).starts_with("{query}");
    const std::string& put = asks ? query : document;
    if (!put.empty()) data.push_back({text.size(), text.size() + put.size()});
    text += put;
    rest.remove_prefix(place + std::string_view(asks ? "{query}" : "{document}").size());
  }
  return model.tokenizer->EncodePrompt(text, data, ids, meter);
}

// Each document with the query, on the account. The first that is too long ends it.
std::optional<ApiError> EncodeAll(const ServedModel& model, const RankRequest& request,
                                  Account* account, std::vector<std::vector<TokenId>>* texts) {
  for (const std::string& document : request.documents) {
    EncodeMeter meter;
    meter.account = account;
    meter.ids_max = static_cast<size_t>(model.context_tokens);
    std::vector<TokenId>& ids = texts->emplace_back();
    Status status = Encode(model, request.query, document, &meter, &ids);
    if (status.ok() && meter.id_count > meter.ids_max) {
      return TextTooLong(model, static_cast<int64_t>(meter.id_count));
    }
    if (status.ok()) status = account->TakeAnswer(ids.size() * sizeof(TokenId), "the documents");
    if (!status.ok()) return ApiError::From(status);
  }
  return std::nullopt;
}

size_t CommonTokens(const std::vector<std::vector<TokenId>>& texts) {
  if (texts.size() < 2) return 0;
  size_t common = texts.front().size();
  for (const std::vector<TokenId>& text : texts) {
    const auto [a, b] =
        std::mismatch(text.begin(), text.end(), texts.front().begin(), texts.front().end());
    common = std::min(common, static_cast<size_t>(a - text.begin()));
  }
  return common;
}

}  // namespace

void HandleRerank(Service* service, const http::ExchangePtr& exchange) {
  const ServedModel& model = service->model();
  const Body body = ParseBody(*exchange, model);
  if (body.error) return Refuse(exchange, *body.error);
  if (model.vectors.rank_rows.empty()) {
    const std::string why = model.vectors.why_not.empty()
                                ? "it has no head for that (pooling_type rank of a GGUF file)"
                                : model.vectors.why_not;
    return Refuse(exchange, {501, "the model '" + model.id + "' ranks no documents: " + why});
  }
  Fields fields(body.document->root());
  RankRequest request = ReadRequest(&fields);
  ReplyOptions chosen;
  if (const auto error = ChooseAdapter(model, &fields, &chosen)) return Refuse(exchange, *error);
  RefuseUnread(Dialect::kVectors, service->options(), &fields);
  if (!fields.ok()) return Refuse(exchange, *fields.error());
  VectorJob job;
  job.pooling = Pooling::kLast;
  job.adapter = std::move(chosen.adapter);
  job.tenant = service->FindTenant(exchange->request());
  if (const auto error = EncodeAll(model, request, exchange->account().get(), &job.texts)) {
    return Refuse(exchange, *error);
  }
  job.shared_tokens = CommonTokens(job.texts);
  auto sink = std::make_unique<RankSink>(exchange, model, std::move(request));
  if (const auto error = StartVectors(service, exchange, std::move(job), std::move(sink))) {
    Refuse(exchange, *error);
  }
}

}  // namespace reprise::api::vectors
