// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/responses/item.h"
#include "base/status.h"

namespace reprise::api::responses {

// Where responses outlive the process. Bounds are its own affair; what it gives back may be
// anything.
//
// Thread safety: all methods from any thread. Put does not wait for a disk.
class ResponseArchive {
 public:
  virtual ~ResponseArchive() = default;
  virtual void Put(std::string_view tenant, std::string_view id, std::string content) = 0;
  virtual std::optional<std::string> Get(std::string_view tenant, std::string_view id) = 0;
  virtual bool Remove(std::string_view tenant, std::string_view id) = 0;
};

struct StoredResponse;

// A response as bytes: version, then its members in order; strings and lists begin with their size
// (32 bits, little endian).
std::string EncodeResponse(const StoredResponse& response);
// Bytes from outside: what comes back could have come from a client.
Result<StoredResponse> DecodeResponse(std::string_view bytes);

}  // namespace reprise::api::responses
