// SPDX-License-Identifier: Apache-2.0
#include "hub/settings.h"

#include <algorithm>
#include <charconv>

#include "base/mapped_file.h"

namespace reprise::hub {
namespace {

// The only host that the program knows by itself.
constexpr char kDefaultEndpoint[] = "https://huggingface.co";

constexpr size_t kTokenBytesMax = 4096;
constexpr int kTimeoutMax = 3600;

std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = environment(name);
    if (!value.empty()) return value;
  }
  return "";
}

bool IsTrue(std::string value) {
  for (char& c : value) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// "~" and "~/..." as shells have them.
std::string Expanded(const std::string& path, const Environment& environment) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return environment("HOME") + path.substr(1);
}

// A token becomes a header: it must not be able to become two.
Result<std::string> ReadToken(const std::string& home, const Environment& environment) {
  std::string token = FirstOf(environment, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  std::string source = "HF_TOKEN";
  if (token.empty()) {
    source = Expanded(environment("HF_TOKEN_PATH"), environment);
    if (source.empty()) source = home + "/token";
    const Result<std::string> text = ReadFile(source, kTokenBytesMax);
    if (!text.ok()) return std::string();
    token = *text;
  }
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!token.empty() && space(token.back())) token.pop_back();
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), space));
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7F; })) {
    return InvalidArgument(source + " does not hold a token: one word of printable characters");
  }
  return token;
}

}  // namespace

Url Settings::At(const std::string& path) const {
  Url url = endpoint;
  while (url.target.ends_with("/")) url.target.pop_back();
  url.target += path;
  return url;
}

Result<Settings> ReadSettings(const Environment& environment) {
  Settings settings;
  settings.http.environment = environment;
  std::string endpoint = environment("HF_ENDPOINT");
  if (endpoint.empty()) endpoint = kDefaultEndpoint;
  Result<Url> url = Url::Parse(endpoint);
  if (!url.ok()) return url.status().Annotate("HF_ENDPOINT");
  settings.endpoint = std::move(*url);

  std::string home = Expanded(environment("HF_HOME"), environment);
  if (home.empty()) {
    const std::string caches = Expanded(environment("XDG_CACHE_HOME"), environment);
    const std::string user = environment("HOME");
    if (caches.empty() && user.empty()) {
      return FailedPrecondition("there is no home folder for the cache: set HF_HOME");
    }
    home = (caches.empty() ? user + "/.cache" : caches) + "/huggingface";
  }
  settings.cache_path =
      Expanded(FirstOf(environment, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}), environment);
  if (settings.cache_path.empty()) settings.cache_path = home + "/hub";
  if (!IsTrue(environment("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    REPRISE_ASSIGN(settings.token, ReadToken(home, environment));
  }
  settings.offline =
      IsTrue(environment("HF_HUB_OFFLINE")) || IsTrue(environment("TRANSFORMERS_OFFLINE"));

  const std::string timeout = environment("HF_HUB_DOWNLOAD_TIMEOUT");
  int seconds = 0;
  std::from_chars(timeout.data(), timeout.data() + timeout.size(), seconds);
  if (seconds > 0 && seconds <= kTimeoutMax) {
    settings.http.pause_limit = std::chrono::seconds(seconds);
    settings.http.answer_limit = std::chrono::seconds(seconds);
  }
  return settings;
}

}  // namespace reprise::hub
