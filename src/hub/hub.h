// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/names/listing.h"
#include "hub/names/model_name.h"
#include "hub/retries.h"
#include "hub/settings.h"

namespace reprise::hub {

// The hub's protocol: what a model consists of, and where its files are.
//
// Thread safety: none.
class Hub {
 public:
  Hub(const Settings& settings, Say say) : settings_(settings), say_(std::move(say)) {}

  // The files of a model at its revision. Fails with a sentence that says what to do: a token, a
  // licence to accept, a name to check.
  Result<Listing> List(const ModelName& name) const;
  // A file whose size or digest the listing does not say (mirrors), from the headers of its answer.
  Result<HubFile> Describe(const ModelName& name, const std::string& commit, HubFile file) const;
  // Bytes [begin, end) of a file, or fewer if it ends before.
  Result<std::string> ReadPart(const ModelName& name, const std::string& commit,
                               const HubFile& file, uint64_t begin, uint64_t end) const;

  // The request for a file, without a range.
  HttpRequest FileRequest(const ModelName& name, const std::string& commit,
                          const HubFile& file) const;

  // OK for 200 and 206. Otherwise what an answer means for a person: kInternal where another try
  // may help.
  Status Check(const HttpAnswer& answer, const ModelName& name) const;
  // What the answer says about the file is what the listing said.
  static Status CheckFile(const HttpAnswer& answer, const HubFile& file);
  // Seconds, from Retry-After.
  static std::optional<uint64_t> AskedPause(const HttpAnswer& answer);

 private:
  // One small answer, with retries. `bytes_max` bounds its body.
  Result<std::string> Read(const HttpRequest& request, const ModelName& name, size_t bytes_max,
                           HttpAnswer* answer) const;

  const Settings& settings_;
  const Say say_;
};

// The digest in an entity tag: without quotes and "W/".
std::string DigestOfTag(const std::string& tag);

}  // namespace reprise::hub
