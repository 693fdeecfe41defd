// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/key_record.h"

#include <charconv>
#include <cstdint>
#include <memory>

namespace reprise::cli {
namespace {

constexpr int64_t kQuotaMax = int64_t{1} << 50;

Status ReadSwitch(const std::string& place, const std::string& value, bool* on) {
  *on = value == "true";
  if (*on || value == "false") return OkStatus();
  return InvalidArgument(place + " must be true or false");
}

template <typename Number>
Status ReadNumber(const std::string& place, const std::string& value, int64_t min, int64_t max,
                  Number* number) {
  int64_t read = 0;
  const char* end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, read);
  if (error != std::errc() || at != end || read < min || read > max) {
    return InvalidArgument(place + " must be a whole number between " + std::to_string(min) +
                           " and " + std::to_string(max));
  }
  *number = static_cast<Number>(read);
  return OkStatus();
}

}  // namespace

Result<api::Tenants::Key> ReadKey(const std::string& path, const ConfigFile::Record& record) {
  api::Tenants::Key key;
  api::Quota::Limits limits;
  for (const auto& [field, value] : record) {
    const std::string place = path + ": " + field + " of a key";
    if (field == "key") {
      key.key = value;
    } else if (field == "name") {
      key.name = value;
    } else if (field == "share") {
      REPRISE_TRY(ReadSwitch(place, value, &key.share));
    } else if (field == "admin") {
      REPRISE_TRY(ReadSwitch(place, value, &key.admin));
    } else if (field == "weight") {
      REPRISE_TRY(ReadNumber(place, value, 1, 1000, &key.weight));
    } else if (field == "requests-per-minute") {
      REPRISE_TRY(ReadNumber(place, value, 1, kQuotaMax, &limits.requests_per_minute));
    } else if (field == "tokens-per-minute") {
      REPRISE_TRY(ReadNumber(place, value, 1, kQuotaMax, &limits.tokens_per_minute));
    } else if (field == "tokens-per-day") {
      REPRISE_TRY(ReadNumber(place, value, 1, kQuotaMax, &limits.tokens_per_day));
    } else {
      return InvalidArgument(path + ": a key has no field '" + field +
                             "' (key, name, share, admin, weight, requests-per-minute, "
                             "tokens-per-minute, tokens-per-day)");
    }
  }
  if (key.key.empty()) return InvalidArgument(path + ": one of the [[keys]] has no key");
  if (limits.any()) key.quota = std::make_shared<api::Quota>(limits);
  return key;
}

}  // namespace reprise::cli
