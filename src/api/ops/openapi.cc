// SPDX-License-Identifier: Apache-2.0
#include "api/ops/openapi.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "version.gen.h"

namespace reprise::api::ops {
namespace {

struct Operation {
  const char* method;
  const char* path;  // as routed; "/*" is a parameter
  const char* tag;
  const char* summary;
  const char* schema = nullptr;             // of the body, below; null: none
  const char* answer = "application/json";  // its type
  bool streams = false;                     // with "stream": true as events
};

constexpr char kText[] = "text/plain";
constexpr char kEvents[] = "text/event-stream";

constexpr Operation kOperations[] = {
    {"POST", "/v1/chat/completions", "OpenAI", "A reply in a chat", "Chat", "application/json",
     true},
    {"POST", "/v1/completions", "OpenAI", "A continuation of a text", "Completion",
     "application/json", true},
    {"POST", "/v1/responses", "OpenAI", "A reply that can be continued by its id", "Response",
     "application/json", true},
    {"POST", "/v1/responses/input_tokens", "OpenAI", "The tokens that a response would read",
     "Response"},
    {"POST", "/v1/responses/*", "OpenAI",
     "Ends a response in the background (its path ends in /cancel)"},
    {"GET", "/v1/responses/*", "OpenAI", "A stored response, its input items, or its events"},
    {"DELETE", "/v1/responses/*", "OpenAI", "Forgets a stored response"},
    {"POST", "/v1/embeddings", "OpenAI", "Vectors of texts", "Embeddings"},
    {"POST", "/v1/rerank", "OpenAI", "Ranks of documents for a query", "Rerank"},
    {"GET", "/v1/models", "OpenAI", "The models and their other names"},
    {"GET", "/v1/models/*", "OpenAI", "One model"},
    {"POST", "/v1/files", "OpenAI", "Keeps a file of requests (multipart/form-data)", "Upload"},
    {"GET", "/v1/files", "OpenAI", "The files of this key"},
    {"GET", "/v1/files/*", "OpenAI", "A file's description, or its content"},
    {"DELETE", "/v1/files/*", "OpenAI", "Removes a file"},
    {"POST", "/v1/batches", "OpenAI", "Answers the requests of a file in the background", "Batch"},
    {"GET", "/v1/batches", "OpenAI", "The batches of this key"},
    {"GET", "/v1/batches/*", "OpenAI", "One batch"},
    {"POST", "/v1/batches/*", "OpenAI", "Cancels a batch (its path ends in /cancel)"},
    {"POST", "/v1/messages", "Anthropic", "A reply in a chat", "Messages", "application/json",
     true},
    {"POST", "/v1/messages/count_tokens", "Anthropic", "The tokens that a message would read",
     "Messages"},
    {"POST", "/api/chat", "Ollama", "A reply in a chat", "OllamaChat", "application/json", true},
    {"POST", "/api/generate", "Ollama", "A continuation of a text", "OllamaGenerate",
     "application/json", true},
    {"POST", "/api/embed", "Ollama", "Vectors of texts", "Embeddings"},
    {"POST", "/api/embeddings", "Ollama", "The vector of a text", "OllamaGenerate"},
    {"POST", "/api/show", "Ollama", "What a model is", "ModelName"},
    {"GET", "/api/tags", "Ollama", "The models"},
    {"GET", "/api/ps", "Ollama", "The models whose weights are in memory"},
    {"GET", "/api/version", "Ollama", "The version of the server"},
    {"POST", "/completion", "llama.cpp", "A continuation of a text", "Completion",
     "application/json", true},
    {"POST", "/infill", "llama.cpp", "The text between a prefix and a suffix", "Infill",
     "application/json", true},
    {"GET", "/slots", "llama.cpp", "Which places are at work"},
    {"POST", "/tokenize", "Text", "The tokens of a text", "Text"},
    {"POST", "/detokenize", "Text", "The text of tokens", "Tokens"},
    {"POST", "/apply-template", "Text", "The prompt of a chat", "Chat"},
    {"GET", "/v1/cache", "Cache", "What is stored for this key, and its last reports"},
    {"GET", "/v1/cache/events", "Cache", "The same as events", nullptr, kEvents},
    {"POST", "/v1/cache/reset", "Cache", "Forgets the stored state", "Reset"},
    {"POST", "/v1/cache/pins", "Cache", "Keeps a stored prefix", "Pin"},
    {"DELETE", "/v1/cache/pins", "Cache", "Releases a kept prefix", "Pin"},
    {"POST", "/v1/models", "Server", "Fetches a model of the hub", "ModelName"},
    {"DELETE", "/v1/models", "Server", "Removes a model that was fetched (its name is ?model=)"},
    {"POST", "/v1/models/load", "Server", "Loads a model", "ModelName"},
    {"POST", "/v1/models/unload", "Server", "Puts a model's weights out of memory", "ModelName"},
    {"GET", "/v1/models/sse", "Server", "The states of all models as events", nullptr, kEvents},
    {"POST", "/v1/load_lora_adapter", "Server", "Loads an adapter", "Adapter"},
    {"POST", "/v1/unload_lora_adapter", "Server", "Lets an adapter go", "Adapter"},
    {"GET", "/lora-adapters", "llama.cpp", "The adapters"},
    {"POST", "/lora-adapters", "llama.cpp", "How much of each adapter is used", "Any"},
    {"GET", "/v1/health", "Server", "Whether the server is ready"},
    {"GET", "/live", "Server", "Whether the process is alive"},
    {"GET", "/version", "Server", "The version"},
    {"GET", "/props", "Server", "Context, template and special tokens"},
    {"GET", "/tokenizer_info", "Server", "Template and special tokens"},
    {"GET", "/server_info", "Server", "What the server is"},
    {"GET", "/v1/loads", "Server", "How busy the server is"},
    {"GET", "/metrics", "Server", "Prometheus metrics", nullptr, kText},
    {"GET", "/metrics/vllm", "Server", "The same in vLLM's names", nullptr, kText},
    {"GET", "/openapi.json", "Server", "This document"},
};

// Names of one place in several APIs.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"/reset_prefix_cache", "/v1/cache/reset"}, {"/v2/rerank", "/v1/rerank"}};

constexpr char kSchemas[] = R"json({
"Error":{"type":"object","properties":{"error":{"type":"object","properties":{
  "message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},
  "code":{"type":["string","null"]}},"required":["message"]}},"required":["error"]},
"Sampling":{"type":"object","properties":{"model":{"type":"string"},"stream":{"type":"boolean"},
  "temperature":{"type":"number","minimum":0,"maximum":2},
  "top_p":{"type":"number","minimum":0,"maximum":1},"top_k":{"type":"integer"},
  "min_p":{"type":"number"},"seed":{"type":"integer"},"max_tokens":{"type":"integer","minimum":-1},
  "stop":{"type":["string","array","null"]}}},
"Message":{"type":"object","properties":{"role":{"type":"string"},
  "content":{"type":["string","array","null"]}},"required":["role"]},
"Messages_":{"type":"array","items":{"$ref":"#/components/schemas/Message"},"minItems":1},
"Chat":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object","properties":{
  "messages":{"$ref":"#/components/schemas/Messages_"},"tools":{"type":"array"},
  "tool_choice":{"type":["string","object"]},"response_format":{"type":"object"},
  "n":{"type":"integer","minimum":1,"maximum":128},"logprobs":{"type":"boolean"},
  "top_logprobs":{"type":"integer"},"reasoning_effort":{"type":"string"}},"required":["messages"]},
"Completion":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object","properties":{
  "prompt":{"type":["string","array"]}},"required":["prompt"]},
"Response":{"type":"object","properties":{"model":{"type":"string"},
  "input":{"type":["string","array"]},"instructions":{"type":"string"},"stream":{"type":"boolean"},
  "previous_response_id":{"type":"string"},"tools":{"type":"array"}}},
"Messages":{"type":"object","properties":{"model":{"type":"string"},
  "messages":{"$ref":"#/components/schemas/Messages_"},"system":{"type":["string","array"]},
  "max_tokens":{"type":"integer"},"stream":{"type":"boolean"},"tools":{"type":"array"}},
  "required":["messages"]},
"Embeddings":{"type":"object","properties":{"model":{"type":"string"},
  "input":{"type":["string","array"]}},"required":["input"]},
"Rerank":{"type":"object","properties":{"model":{"type":"string"},"query":{"type":"string"},
  "documents":{"type":"array"},"top_n":{"type":"integer"}},"required":["query","documents"]},
"Upload":{"type":"object","properties":{"file":{"type":"string","format":"binary"},
  "purpose":{"type":"string"}},"required":["file","purpose"]},
"Batch":{"type":"object","properties":{"input_file_id":{"type":"string"},
  "endpoint":{"type":"string"},"completion_window":{"type":"string"},
  "metadata":{"type":["object","null"]}},"required":["input_file_id","endpoint"]},
"OllamaChat":{"type":"object","properties":{"model":{"type":"string"},
  "messages":{"$ref":"#/components/schemas/Messages_"},"stream":{"type":"boolean"},
  "options":{"type":"object"}}},
"OllamaGenerate":{"type":"object","properties":{"model":{"type":"string"},
  "prompt":{"type":"string"},"stream":{"type":"boolean"},"options":{"type":"object"}}},
"Adapter":{"type":"object","properties":{"lora_name":{"type":"string"},
  "lora_path":{"type":"string"}},"required":["lora_name"]},
"Any":{},
"ModelName":{"type":"object","properties":{"model":{"type":"string"}}},
"Infill":{"type":"object","properties":{"input_prefix":{"type":"string"},
  "input_suffix":{"type":"string"}}},
"Text":{"type":"object","properties":{"content":{"type":"string"},"prompt":{"type":"string"}}},
"Tokens":{"type":"object","properties":{"tokens":{"type":"array","items":{"type":"integer"}}}},
"Reset":{"type":"object","properties":{"all":{"type":"boolean"}}},
"Pin":{"type":"object","properties":{"messages":{"$ref":"#/components/schemas/Messages_"},
  "prompt":{"type":"string"},"ttl":{"type":"string"}}}
})json";

const Operation* FindOperation(std::string_view method, std::string_view path) {
  const auto found = std::ranges::find_if(
      kOperations, [&](const Operation& one) { return one.method == method && one.path == path; });
  return found != std::end(kOperations) ? &*found : nullptr;
}

// "/v1/files/*" -> "/v1/files/{id}".
std::string Template(std::string path) {
  if (path.ends_with("/*")) path.replace(path.size() - 1, 1, "{id}");
  return path;
}

std::string OperationId(const Operation& operation) {
  std::string id = operation.method;
  for (const char c : std::string_view(operation.path)) {
    id += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return id;
}

void WriteContent(const char* type, const std::string& schema, JsonWriter* json) {
  json->Key(type).BeginObject().Key("schema").Raw(schema).EndObject();
}

void WriteOperation(const Operation& operation, JsonWriter* json) {
  json->BeginObject().Member("operationId", OperationId(operation));
  json->Key("tags").BeginArray().String(operation.tag).EndArray();
  json->Member("summary", operation.summary);
  if (std::string_view(operation.path).ends_with("/*")) {
    json->Key("parameters").BeginArray();
    json->Raw(R"({"name":"id","in":"path","required":true,"schema":{"type":"string"}})");
    json->EndArray();
  }
  if (operation.schema != nullptr) {
    const bool form = std::string_view(operation.schema) == "Upload";
    json->Key("requestBody").BeginObject().Key("content").BeginObject();
    WriteContent(form ? "multipart/form-data" : "application/json",
                 R"({"$ref":"#/components/schemas/)" + std::string(operation.schema) + "\"}", json);
    json->EndObject().EndObject();
  }
  json->Key("responses").BeginObject().Key("200").BeginObject().Member("description", "The answer");
  json->Key("content").BeginObject();
  const bool text = operation.answer != std::string_view("application/json");
  WriteContent(operation.answer, text ? R"({"type":"string"})" : "{}", json);
  if (operation.streams) WriteContent(kEvents, R"({"type":"string"})", json);
  json->EndObject().EndObject();
  json->Key("default").BeginObject().Member("description", "Why there is none");
  json->Key("content").BeginObject();
  WriteContent("application/json", R"({"$ref":"#/components/schemas/Error"})", json);
  json->EndObject().EndObject().EndObject().EndObject();
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

bool IsDescribed(std::string_view method, std::string_view path) {
  for (const auto& [other, name] : kOtherNames) {
    if (path == other) path = name;
  }
  return FindOperation(method, path) != nullptr ||
         FindOperation(method, "/v1" + std::string(path)) != nullptr || path == "/" ||
         path == "/assets/*";
}

std::string FormatOpenApi(const http::Router& router) {
  std::map<std::string, std::vector<const Operation*>> paths;
  for (const http::Router::Route& route : router.routes()) {
    const Operation* operation = FindOperation(route.method, route.path);
    if (operation != nullptr) paths[Template(route.path)].push_back(operation);
  }
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("openapi", "3.1.0").Key("info").BeginObject();
  json.Member("title", "Reprise").Member("version", kVersion).EndObject();
  json.Key("servers").Raw(R"([{"url":"/"}])").Key("security").Raw(R"([{},{"key":[]}])");
  json.Key("paths").BeginObject();
  for (const auto& [path, operations] : paths) {
    json.Key(path).BeginObject();
    for (const Operation* operation : operations) {
      json.Key(Lower(operation->method));
      WriteOperation(*operation, &json);
    }
    json.EndObject();
  }
  json.EndObject().Key("components").BeginObject();
  json.Key("securitySchemes").Raw(R"({"key":{"type":"http","scheme":"bearer"}})");
  json.Key("schemas").Raw(kSchemas).EndObject().EndObject();
  return text;
}

void AddOpenApi(http::Router* router) {
  const auto text = std::make_shared<std::string>();
  router->Add("GET", "/openapi.json", http::RunOn::kQuick, [text](const http::ExchangePtr& e) {
    http::Response response;
    response.body = *text;
    e->Respond(std::move(response));
  });
  *text = FormatOpenApi(*router);
}

}  // namespace reprise::api::ops
