// SPDX-License-Identifier: Apache-2.0
#include "hub/hub.h"

#include <utility>

namespace reprise::hub {
namespace {

constexpr size_t kListingBytesMax = 64 << 20;

std::string EncodedRevision(const std::string& revision) {
  std::string text;
  for (const char c : revision) text += c == '/' ? std::string("%2F") : PercentEncode({&c, 1});
  return text;
}

bool IsWebPage(const HttpAnswer& answer, const HubFile& file) {
  const std::string* type = answer.head.Find("content-type");
  return type != nullptr && type->starts_with("text/html") && !file.path.ends_with(".html");
}

}  // namespace

std::string DigestOfTag(const std::string& tag) {
  std::string_view text = tag;
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

std::optional<uint64_t> Hub::AskedPause(const HttpAnswer& answer) {
  return answer.head.Number("retry-after");
}

Status Hub::Check(const HttpAnswer& answer, const ModelName& name) const {
  const int status = answer.head.status;
  if (status == 200 || status == 206) return OkStatus();
  const std::string* code = answer.first.Find("x-error-code");
  const std::string error = code == nullptr ? "" : *code;
  const std::string page = settings_.At("/" + name.repo).ToString();
  const std::string token_help =
      "set HF_TOKEN to a token of " + settings_.At("/settings/tokens").ToString();
  if (error == "GatedRepo") {
    return FailedPrecondition(
        "the model is given out on conditions: open " + page + " in a browser, accept them, and " +
        (settings_.token.empty() ? token_help : "try again with a token of that account"));
  }
  if (status == 404 && error == "RevisionNotFound") {
    return NotFound("there is no revision '" + name.revision + "' of it on the hub");
  }
  if (status == 404 && error == "EntryNotFound") return NotFound("the hub does not have the file");
  if (status == 404 || error == "RepoNotFound") {
    return NotFound("there is no such model on " + settings_.endpoint.host +
                    ": check the spelling" +
                    (settings_.token.empty() ? "; if it is private, " + token_help : ""));
  }
  if (status == 401) {
    return FailedPrecondition(
        settings_.token.empty()
            ? "the hub has no public model of this name: check the spelling; if it is private, " +
                  token_help
            : "the hub does not take the token: log in again, or " + token_help);
  }
  if (status == 403) {
    return FailedPrecondition("the hub does not let this account read it: look at " + page +
                              (settings_.token.empty() ? ", and " + token_help : ""));
  }
  const std::string what = answer.url.host + " answers " + std::to_string(status);
  if (status == 429) return Internal(what + " (too many requests)");
  if (status == 408 || status == 416 || status >= 500) return Internal(what);
  return FailedPrecondition(what);
}

Status Hub::CheckFile(const HttpAnswer& answer, const HubFile& file) {
  if (IsWebPage(answer, file)) {
    return Internal(answer.url.host +
                    " sends a web page instead of the file (a log-in page of the network?)");
  }
  const std::string* tag = answer.first.Find("x-linked-etag");
  if (tag == nullptr) tag = answer.first.Find("etag");
  const std::string digest = tag == nullptr ? "" : DigestOfTag(*tag);
  // Mirrors have tags of their own; one of the same kind is meant as the digest.
  if (digest.size() == file.digest.size() && IsDigest(digest) && digest != file.digest) {
    return Internal("the hub sends another file than its list says");
  }
  const auto size = answer.first.Number("x-linked-size");
  if (size && *size != file.bytes) {
    return Internal("the hub sends a file of another size than its list says");
  }
  return OkStatus();
}

HttpRequest Hub::FileRequest(const ModelName& name, const std::string& commit,
                             const HubFile& file) const {
  HttpRequest request;
  request.url =
      settings_.At("/" + name.repo + "/resolve/" + commit + "/" + PercentEncode(file.path));
  request.token = settings_.token;
  return request;
}

Result<std::string> Hub::Read(const HttpRequest& request, const ModelName& name, size_t bytes_max,
                              HttpAnswer* answer) const {
  Retries retries(settings_, say_);
  for (;;) {
    std::string body;
    std::optional<uint64_t> asked;
    BodySink sink;
    sink.on_head = [&](const HttpAnswer& seen) {
      *answer = seen;
      asked = AskedPause(seen);
      if (seen.head.status / 100 == 3 && !request.other_hosts) return OkStatus();
      return Check(seen, name);
    };
    sink.on_body = [&](std::string_view piece) {
      body += piece;
      return body.size() <= bytes_max ? OkStatus()
                                      : ResourceExhausted("the hub's answer is too long");
    };
    const Result<HttpAnswer> result = Fetch(request, settings_.http, sink);
    if (result.ok()) return body;
    REPRISE_TRY(retries.Wait(result.status(), asked));
  }
}

Result<Listing> Hub::List(const ModelName& name) const {
  HttpRequest request;
  request.url = settings_.At("/api/models/" + name.repo + "/revision/" +
                             EncodedRevision(name.revision) + "?blobs=true");
  request.token = settings_.token;
  HttpAnswer answer;
  REPRISE_ASSIGN(const std::string body, Read(request, name, kListingBytesMax, &answer));
  return Listing::Parse(body);
}

Result<HubFile> Hub::Describe(const ModelName& name, const std::string& commit,
                              HubFile file) const {
  HttpRequest request = FileRequest(name, commit, file);
  request.method = "HEAD";
  request.other_hosts = false;  // the hub's own headers say it
  HttpAnswer answer;
  REPRISE_ASSIGN(const std::string none, Read(request, name, 0, &answer));
  const ResponseHead& head = answer.head;
  const std::string* tag = head.Find("x-linked-etag");
  if (tag == nullptr) tag = head.Find("etag");
  if (tag != nullptr) file.digest = DigestOfTag(*tag);
  auto bytes = head.Number("x-linked-size");
  if (!bytes && head.status == 200) bytes = head.Number("content-length");
  if (!IsDigest(file.digest) || !bytes) {
    return DataLoss("the hub does not say the size and the checksum of " + file.path +
                    ", so it could not be checked");
  }
  file.bytes = *bytes;
  return file;
}

Result<std::string> Hub::ReadPart(const ModelName& name, const std::string& commit,
                                  const HubFile& file, uint64_t begin, uint64_t end) const {
  HttpRequest request = FileRequest(name, commit, file);
  request.begin = begin;
  request.end = end;
  HttpAnswer answer;
  return Read(request, name, end - begin, &answer);
}

}  // namespace reprise::hub
