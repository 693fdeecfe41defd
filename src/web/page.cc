// SPDX-License-Identifier: Apache-2.0
#include "web/page.h"

#include <utility>

#include "web/embedded.h"

namespace reprise::web {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string TypeOf(std::string_view path) {
  constexpr std::pair<std::string_view, const char*> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".json", "application/json"},
      {".txt", "text/plain; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".ico", "image/x-icon"},
      {".woff2", "font/woff2"}};
  for (const auto& [ending, type] : kTypes) {
    if (path.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

// An answer that was compressed on its way has a weak tag.
std::string_view WithoutWeakness(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  return etag;
}

void Serve(const http::ExchangePtr& exchange) {
  std::string_view path = exchange->request().path;
  path = path == "/" ? std::string_view("index.html") : path.substr(1);
  http::Response response;
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  for (const EmbeddedFile& file : kEmbeddedFiles) {
    if (file.path != path) continue;
    response.content_type = TypeOf(path);
    response.headers.emplace_back("ETag", std::string(file.etag));
    if (WithoutWeakness(exchange->request().Header("if-none-match")) == file.etag) {
      response.status = 304;
    } else {
      response.body = std::string(file.bytes);
    }
    return exchange->Respond(std::move(response));
  }
  response.status = 404;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "there is nothing here\n";
  exchange->Respond(std::move(response));
}

}  // namespace

void AddRoutes(http::Router* router) {
  router->Add("GET", "/", http::RunOn::kServer, Serve);
  router->Add("GET", "/assets/*", http::RunOn::kServer, Serve);
}

}  // namespace reprise::web
