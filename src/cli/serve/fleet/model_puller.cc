// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/model_puller.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/body.h"
#include "api/errors.h"
#include "api/fields.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/hub/named_model.h"
#include "cli/serve/fleet/model_list.h"
#include "hub/cache/cache_folder.h"
#include "hub/cache/inventory.h"
#include "hub/names/model_name.h"
#include "hub/settings.h"

namespace reprise::cli {
namespace {

using http::ExchangePtr;

constexpr size_t kNameBytesMax = 1024;
constexpr auto kTellEvery = std::chrono::milliseconds(100);

// A model of the hub as Ollama's clients, Reprise's commands and people name it.
Result<hub::ModelName> ParseName(std::string_view text) {
  for (const std::string_view prefix : {"https://", "hf.co/", "huggingface.co/", "hf://", "hf:"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  constexpr std::string_view kTag = ":latest";
  if (text.ends_with(kTag)) text.remove_suffix(kTag.size());
  if (text.find('/') == std::string_view::npos) {
    return InvalidArgument("'" + std::string(text) +
                           "' is not a model of the hub: name one as ORG/REPO:Q4_K_M");
  }
  return hub::ModelName::Parse(text);
}

std::string StatusLine(std::string_view status) {
  std::string line;
  JsonWriter(&line).BeginObject().Member("status", status).EndObject();
  return line + "\n";
}

std::string ProgressLine(const std::string& name, uint64_t done, uint64_t total) {
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("status", "pulling " + name).Member("digest", name);
  json.Member("total", total).Member("completed", done).EndObject();
  return line + "\n";
}

// An event of /models/sse, as llama-server writes it.
std::string DownloadEvent(const std::string& name, std::string_view event,
                          const std::string& error = "", uint64_t done = 0, uint64_t total = 0) {
  std::string text = "data: ";
  JsonWriter json(&text);
  json.BeginObject().Member("model", name).Member("event", event).Key("data").BeginObject();
  if (!error.empty()) json.Member("error", error);
  if (total > 0) json.Member("done", done).Member("total", total);
  json.EndObject().EndObject();
  return text + "\n\n";
}

http::Response Success() {
  http::Response response;
  response.body = R"({"success":true})";
  return response;
}

// {"model": NAME} (or "name"), as all of Ollama's endpoints have it.
std::string ReadName(api::Fields* fields) {
  std::string name;
  fields->Read("name", kNameBytesMax, &name);
  fields->Read("model", kNameBytesMax, &name);
  if (fields->ok() && name.empty()) fields->Fail("model", "is required");
  return name;
}

// The model comes from the cache of the hub's tools, and is removed there.
Status RemoveFromCache(const hub::ModelName& name) {
  REPRISE_ASSIGN(const hub::Settings settings, hub::ReadSettings(hub::ProcessEnvironment));
  return hub::RemoveModel(hub::CacheFolder(settings.cache_path), name).status();
}

}  // namespace

void ModelPuller::AddRoutes(http::Router* router) {
  router->Add("POST", "/api/pull", http::RunOn::kWorker,
              [this](const ExchangePtr& exchange) { Pull(exchange, /*background=*/false); });
  router->Add("DELETE", "/api/delete", http::RunOn::kWorker,
              [this](const ExchangePtr& exchange) { DeleteNamed(exchange); });
  for (const std::string path : {"/models", "/v1/models"}) {
    router->Add("POST", path, http::RunOn::kWorker,
                [this](const ExchangePtr& exchange) { Pull(exchange, /*background=*/true); });
    router->Add("DELETE", path, http::RunOn::kWorker, [this](const ExchangePtr& exchange) {
      Delete(exchange, exchange->request().QueryValue("model"));
    });
  }
}

void ModelPuller::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Job& job : jobs_) job.cancelled = true;
  }
  for (Job& job : jobs_) job.thread.join();
  jobs_.clear();
}

bool ModelPuller::LetIn(const ExchangePtr& exchange) const {
  if (fleet_->front().service().FindTenant(exchange->request())->admin) return true;
  api::Refuse(exchange, {403,
                         "to pull and delete models needs an admin key (admin = true in the "
                         "configuration)"});
  return false;
}

void ModelPuller::Pull(const ExchangePtr& exchange, bool background) {
  if (!LetIn(exchange)) return;
  const api::Body body = api::ParseBody(*exchange);
  if (body.error) return api::Refuse(exchange, *body.error);
  api::Fields fields(body.document->root());
  const std::string text = ReadName(&fields);
  bool stream = true;
  fields.Read("stream", &stream);
  if (!fields.ok()) return api::Refuse(exchange, *fields.error());
  const auto name = ParseName(text);
  if (!name.ok()) return api::Refuse(exchange, {400, name.status().message(), "model"});
  const std::lock_guard lock(mutex_);
  if (stopped_) return api::Refuse(exchange, {503, "the server ends"});  // Stop joins the rest
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool done = job->done;
    if (done) job->thread.join();
    job = done ? jobs_.erase(job) : std::next(job);
  }
  if (jobs_.size() >= kPullsMax) {
    return api::Refuse(exchange, {429, "too many models are being pulled; try again later"});
  }
  Job& job = jobs_.emplace_back();
  job.name = name->ToString();
  job.stream = stream && !background;
  if (!background) job.exchange = exchange;
  if (job.stream) exchange->StartStream({{"Content-Type", "application/x-ndjson"}});
  job.thread = std::thread([this, &job] { Run(&job); });
  if (background) exchange->Respond(Success());
}

void ModelPuller::Run(Job* job) {
  if (job->stream) job->exchange->Send(StatusLine("pulling manifest"));
  const Status fetched = Fetch(job);
  if (fetched.ok()) {
    Log(LogLevel::kInfo, "the model '" + job->name + "' was pulled");
  } else {
    Log(LogLevel::kWarning, "the model '" + job->name + "' was not pulled: " + fetched.message());
  }
  Answer(job, fetched);
  job->exchange.reset();
  job->done = true;
}

void ModelPuller::Answer(Job* job, const Status& fetched) {
  if (job->exchange == nullptr) {
    fleet_->Tell(fetched.ok() ? DownloadEvent(job->name, "download_finished")
                              : DownloadEvent(job->name, "download_failed", fetched.message()));
  } else if (job->stream) {
    std::string line;
    JsonWriter(&line).BeginObject().Member("error", fetched.message()).EndObject();
    job->exchange->Send(fetched.ok() ? StatusLine("success") : line + "\n");
    job->exchange->End();
  } else if (fetched.ok()) {
    http::Response response;
    response.body = R"({"status":"success"})";
    job->exchange->Respond(std::move(response));
  } else {
    api::Refuse(job->exchange, {fetched.code() == StatusCode::kNotFound ? 404 : 500,
                                "the model was not pulled: " + fetched.message()});
  }
}

// Into the cache, then into the folder, then into the fleet: what is served is found again.
Status ModelPuller::Fetch(Job* job) {
  FetchOptions options;
  options.update = true;
  options.cancelled = &job->cancelled;
  options.say = [](const std::string& line) { Log(LogLevel::kInfo, line); };
  auto told = std::chrono::steady_clock::time_point();
  options.progress = [&](uint64_t done, uint64_t total) {
    if (job->exchange != nullptr && job->exchange->abandoned()) job->cancelled = true;
    const auto now = std::chrono::steady_clock::now();
    if (done < total && now - told < kTellEvery) return;
    told = now;
    if (job->exchange == nullptr) {
      fleet_->Tell(DownloadEvent(job->name, "download_progress", "", done, total));
    } else if (job->stream) {
      job->exchange->Send(ProgressLine(job->name, done, total));
    }
  };
  ServeOptions model = server_;
  REPRISE_ASSIGN(model.model.path, FetchModel(job->name, options));
  if (job->stream) job->exchange->Send(StatusLine("writing manifest"));
  REPRISE_ASSIGN(const hub::ModelName name, hub::ModelName::Parse(job->name));
  const std::string line = "hf:" + job->name + "\n";
  const std::lock_guard lock(adding_);  // of two pulls of one model, one finds what the other left
  REPRISE_TRY(WriteFileAtomically(HubFilePath(server_.models_dir, name),
                                  std::as_bytes(std::span(line.data(), line.size()))));
  model.aliases = NamesOf(name);
  // One that is there already stays as it is until the next start.
  for (const api::ModelBrief& other : fleet_->List()) {
    if (other.id == job->name) return OkStatus();
  }
  return fleet_->Add(std::move(model));
}

void ModelPuller::DeleteNamed(const ExchangePtr& exchange) {
  const api::Body body = api::ParseBody(*exchange);
  if (body.error) return api::Refuse(exchange, *body.error);
  api::Fields fields(body.document->root());
  const std::string text = ReadName(&fields);
  if (!fields.ok()) return api::Refuse(exchange, *fields.error());
  Delete(exchange, text);
}

void ModelPuller::Delete(const ExchangePtr& exchange, const std::string& text) {
  if (!LetIn(exchange)) return;
  const auto name = ParseName(text);
  std::error_code error;
  const std::string file = name.ok() ? HubFilePath(server_.models_dir, *name) : "";
  if (file.empty() || !std::filesystem::exists(file, error)) {
    return api::Refuse(exchange, {404,
                                  "'" + text +
                                      "' was not pulled here: only models that the server fetched "
                                      "can be deleted",
                                  "model"});
  }
  const Status removed = fleet_->Remove(name->ToString());
  if (removed.code() == StatusCode::kFailedPrecondition) {
    return api::Refuse(exchange, {409, removed.message(), "model"});
  }
  std::filesystem::remove(file, error);
  const Status freed = RemoveFromCache(*name);
  if (!freed.ok()) {
    Log(LogLevel::kWarning, name->ToString() + " stays in the cache: " + freed.message());
  }
  // Ollama's clients want no body.
  exchange->Respond(exchange->request().path == "/api/delete" ? http::Response() : Success());
}

}  // namespace reprise::cli
