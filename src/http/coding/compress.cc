// SPDX-License-Identifier: Apache-2.0
#include "http/coding/compress.h"

#include <zlib.h>

#include <string>
#include <string_view>
#include <utility>

namespace reprise::http {
namespace {

constexpr size_t kBytesMin = 8 << 10;  // a short answer is there sooner as it is
constexpr int kLevel = 1;              // the fastest
constexpr int kGzipWindow = 15 + 16;   // zlib's number for gzip
constexpr int kMemoryLevel = 8;        // zlib's default: 256 KiB

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Whether a weight ("q=0.5") is 0.
bool IsZero(std::string_view weight) {
  if (!weight.starts_with("q=") && !weight.starts_with("Q=")) return false;
  return weight.find_first_not_of("0.", 2) == std::string_view::npos;
}

// "br, gzip;q=0.8" takes gzip; "gzip;q=0" does not.
bool TakesGzip(std::string_view accepted) {
  while (!accepted.empty()) {
    const size_t end = accepted.find(',');
    const std::string_view one = accepted.substr(0, end);
    accepted = end == std::string_view::npos ? std::string_view() : accepted.substr(end + 1);
    const size_t semicolon = one.find(';');
    if (!EqualIgnoringCase(Trim(one.substr(0, semicolon)), "gzip")) continue;
    return semicolon == std::string_view::npos || !IsZero(Trim(one.substr(semicolon + 1)));
  }
  return false;
}

bool IsText(std::string_view type) {
  return type.starts_with("text/") || type.starts_with("application/json") ||
         type.starts_with("image/svg");
}

bool Gzip(const std::string& bytes, std::string* packed) {
  z_stream stream = {};
  if (::deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return false;
  }
  packed->resize(::deflateBound(&stream, bytes.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed->data());
  stream.avail_out = static_cast<uInt>(packed->size());
  const bool done = ::deflate(&stream, Z_FINISH) == Z_STREAM_END;
  packed->resize(stream.total_out);
  ::deflateEnd(&stream);
  return done;
}

}  // namespace

void Compress(const Request& request, size_t bytes_max, Response* response) {
  const size_t bytes = response->body.size();
  if (bytes < kBytesMin || bytes > bytes_max || !IsText(response->content_type)) return;
  // Caches between here and the client must not give a packed answer to who did not ask for one.
  response->headers.emplace_back("Vary", "Accept-Encoding");
  std::string packed;
  if (!TakesGzip(request.Header("accept-encoding")) || !Gzip(response->body, &packed)) return;
  response->body = std::move(packed);
  for (auto& [name, value] : response->headers) {
    // The same bytes to a person, not to a machine.
    if (name == "ETag" && !value.starts_with("W/")) value = "W/" + value;
  }
  response->headers.emplace_back("Content-Encoding", "gzip");
}

}  // namespace reprise::http
