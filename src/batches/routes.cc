// SPDX-License-Identifier: Apache-2.0
#include "batches/routes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/body.h"
#include "api/errors.h"
#include "api/fields.h"
#include "base/json_writer.h"
#include "batches/multipart.h"

namespace reprise::batches {
namespace {

using http::ExchangePtr;

constexpr char kFiles[] = "/v1/files";
constexpr char kBatches[] = "/v1/batches";
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kMetadataBytesMax = 64 << 10;
constexpr int64_t kWindowSeconds = 24 * 3600;
constexpr const char* kEndpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                      "/v1/responses"};

struct Parts {
  FileStore* files;
  BatchRunner* runner;
  std::function<const api::Tenant*(const http::Request&)> tenant_of;
};

void Respond(const ExchangePtr& exchange, std::string body) {
  http::Response response;
  response.body = std::move(body);
  exchange->Respond(std::move(response));
}

void WriteFile(const StoredFile& file, JsonWriter* json) {
  json->BeginObject().Member("id", file.id).Member("object", "file").Member("bytes", file.bytes);
  json->Member("created_at", file.created).Member("filename", file.name);
  json->Member("purpose", file.purpose).Member("status", "processed").EndObject();
}

template <typename Item, typename WriteItem>
std::string FormatList(const http::Request& request, const std::vector<Item>& items,
                       const WriteItem& write) {
  // Pages begin behind `after`.
  const std::string after = request.QueryValue("after");
  auto begin = items.begin();
  if (!after.empty()) {
    begin = std::ranges::find_if(items, [&](const Item& one) { return one.id == after; });
    if (begin != items.end()) ++begin;
  }
  const std::string limit = request.QueryValue("limit");
  size_t most = 0;
  for (const char c : limit.substr(0, 5)) most = c >= '0' && c <= '9' ? most * 10 + (c - '0') : 0;
  most = std::clamp<size_t>(most == 0 ? 100 : most, 1, 1000);
  const auto left = static_cast<size_t>(items.end() - begin);
  const auto end = begin + static_cast<ptrdiff_t>(std::min(left, most));
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("object", "list").Key("data").BeginArray();
  for (auto one = begin; one != end; ++one) write(*one, &json);
  json.EndArray().Key("first_id");
  begin == end ? json.Null() : json.String(begin->id);
  json.Key("last_id");
  begin == end ? json.Null() : json.String((end - 1)->id);
  json.Member("has_more", end != items.end()).EndObject();
  return text;
}

void Upload(const Parts& parts, const api::Tenant& tenant, const ExchangePtr& exchange) {
  const http::Request& request = exchange->request();
  const auto form = ParseMultipart(request.Header("content-type"), request.body);
  if (!form.ok()) return api::Refuse(exchange, api::ApiError::From(form.status()));
  StoredFile file;
  const FormPart* content = nullptr;
  for (const FormPart& part : *form) {
    if (part.name == "file") content = &part;
    if (part.name == "purpose") file.purpose = part.content;
  }
  if (content == nullptr) return api::Refuse(exchange, {400, "the form has no file", "file"});
  if (file.purpose != "batch") {
    return api::Refuse(exchange,
                       {400, "purpose must be batch: files are for batches here", "purpose"});
  }
  file.tenant = OwnerOf(tenant);
  file.name = content->file_name.substr(0, kNameBytesMax);
  const auto added = parts.files->Add(file, content->content);
  if (!added.ok()) return api::Refuse(exchange, api::ApiError::From(added.status()));
  std::string text;
  JsonWriter json(&text);
  WriteFile(*added, &json);
  Respond(exchange, std::move(text));
}

// What stands behind the folder of a path, and whether it ends with a word that is cut off.
std::string IdOf(const http::Request& request, const char* folder, const char* word, bool* ends) {
  std::string id = request.path.substr(std::string(folder).size() + 1);
  const std::string end = "/" + std::string(word);
  *ends = id.ends_with(end);
  if (*ends) id.resize(id.size() - end.size());
  return id;
}

void OneFile(const Parts& parts, const api::Tenant& tenant, const ExchangePtr& exchange) {
  bool content = false;
  const http::Request& request = exchange->request();
  const std::string id = IdOf(request, kFiles, "content", &content);
  const auto file = parts.files->Find(OwnerOf(tenant), id);
  if (!file)
    return api::Refuse(exchange, {404, "there is no file '" + id.substr(0, 64) + "'", "id"});
  std::string text;
  JsonWriter json(&text);
  if (request.method == "DELETE") {
    parts.files->Remove(OwnerOf(tenant), id);
    json.BeginObject()
        .Member("id", id)
        .Member("object", "file")
        .Member("deleted", true)
        .EndObject();
  } else if (content) {
    auto bytes = parts.files->Read(*file);
    if (!bytes.ok()) return api::Refuse(exchange, {500, bytes.status().message()});
    http::Response response;
    response.content_type = "application/octet-stream";
    response.body = std::move(*bytes);
    return exchange->Respond(std::move(response));
  } else {
    WriteFile(*file, &json);
  }
  Respond(exchange, std::move(text));
}

void Create(const Parts& parts, const api::Tenant& tenant, const ExchangePtr& exchange) {
  const api::Body body = api::ParseBody(*exchange);
  if (body.error) return api::Refuse(exchange, *body.error);
  api::Fields fields(body.document->root());
  Batch batch;
  fields.Read("input_file_id", kNameBytesMax, &batch.input_file_id);
  fields.Read("endpoint", kNameBytesMax, &batch.endpoint);
  fields.Read("completion_window", kNameBytesMax, &batch.completion_window);
  if (const JsonValue* metadata = fields.Object("metadata")) {
    batch.metadata.clear();
    JsonWriter(&batch.metadata).Value(*metadata);
  }
  if (!fields.ok()) return api::Refuse(exchange, *fields.error());
  const auto known = [&](const char* one) { return batch.endpoint == one; };
  if (std::ranges::none_of(kEndpoints, known)) {
    return api::Refuse(exchange, {400,
                                  "endpoint must be /v1/chat/completions, /v1/completions, "
                                  "/v1/embeddings or /v1/responses",
                                  "endpoint"});
  }
  if (batch.completion_window != "24h") {
    return api::Refuse(exchange, {400, "completion_window must be 24h", "completion_window"});
  }
  if (batch.metadata.size() > kMetadataBytesMax) {
    return api::Refuse(exchange, {400, "metadata is too large", "metadata"});
  }
  if (!parts.files->Find(OwnerOf(tenant), batch.input_file_id)) {
    return api::Refuse(exchange, {404, "there is no such file", "input_file_id"});
  }
  batch.tenant = OwnerOf(tenant);
  batch.expires_at = NowSeconds() + kWindowSeconds;
  const auto added = parts.runner->Add(std::move(batch));
  if (!added.ok()) return api::Refuse(exchange, {429, added.status().message()});
  std::string text;
  JsonWriter json(&text);
  WriteBatch(*added, &json);
  Respond(exchange, std::move(text));
}

void OneBatch(const Parts& parts, const api::Tenant& tenant, const ExchangePtr& exchange) {
  bool cancel = false;
  const http::Request& request = exchange->request();
  const std::string id = IdOf(request, kBatches, "cancel", &cancel);
  const bool post = request.method == "POST";
  std::optional<Batch> batch;
  if (post == cancel) {
    batch =
        post ? parts.runner->Cancel(OwnerOf(tenant), id) : parts.runner->Find(OwnerOf(tenant), id);
  }
  if (!batch) {
    return api::Refuse(exchange, {404, "there is no batch '" + id.substr(0, 64) + "'", "id"});
  }
  std::string text;
  JsonWriter json(&text);
  WriteBatch(*batch, &json);
  Respond(exchange, std::move(text));
}

}  // namespace

void AddRoutes(FileStore* files, BatchRunner* runner,
               std::function<const api::Tenant*(const http::Request&)> tenant_of,
               http::Router* router) {
  const Parts parts{files, runner, std::move(tenant_of)};
  using Handle = std::function<void(const Parts&, const api::Tenant&, const ExchangePtr&)>;
  const auto add = [&](const char* method, const std::string& path, Handle handle) {
    router->Add(method, path, http::RunOn::kWorker,
                [parts, handle = std::move(handle)](const ExchangePtr& exchange) {
                  handle(parts, *parts.tenant_of(exchange->request()), exchange);
                });
  };
  const std::string one_file = std::string(kFiles) + "/*";
  const std::string one_batch = std::string(kBatches) + "/*";
  add("POST", kFiles, Upload);
  add("GET", kFiles, [](const Parts& p, const api::Tenant& tenant, const ExchangePtr& exchange) {
    Respond(exchange, FormatList(exchange->request(), p.files->List(OwnerOf(tenant)), WriteFile));
  });
  add("GET", one_file, OneFile);
  add("DELETE", one_file, OneFile);
  add("POST", kBatches, Create);
  add("GET", kBatches, [](const Parts& p, const api::Tenant& tenant, const ExchangePtr& exchange) {
    Respond(exchange, FormatList(exchange->request(), p.runner->List(OwnerOf(tenant)), WriteBatch));
  });
  add("GET", one_batch, OneBatch);
  add("POST", one_batch, OneBatch);
}

}  // namespace reprise::batches
