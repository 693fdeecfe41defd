// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "api/fields/known_fields.h"
#include "base/json.h"

namespace reprise::api {

// Reads the members of a request body. null counts as absent; a wrong type or a value out of range
// is remembered (the first one, with the name of the field), and the target stays as it was. Ask
// error() at the end.
//
// Thread safety: none.
class Fields {
 public:
  // `prefix` goes before names in errors: "messages[3]."
  explicit Fields(const JsonValue& object, std::string prefix = "");

  void Read(std::string_view name, double low, double high, float* value);
  void Read(std::string_view name, int64_t low, int64_t high, int64_t* value);
  void Read(std::string_view name, int64_t low, int64_t high, int32_t* value);
  void Read(std::string_view name, bool* value);
  void Read(std::string_view name, size_t bytes_max, std::string* value);

  // Whose fields they are: Find also finds a field by its aliases there (known_fields.h), if it is
  // not there by its own name. Without it there are no aliases.
  void SetDialect(Dialect dialect) { dialect_ = dialect; }

  // For what this server does not have: fails unless it is absent or `neutral`, which means without
  // it.
  void Leave(std::string_view name, double neutral);

  // Null if absent or wrong.
  const JsonValue* Array(std::string_view name, size_t count_max);
  const JsonValue* Object(std::string_view name);
  const JsonValue* Find(std::string_view name) const;  // any kind; null if absent or null

  // The members that nobody has asked for by name so far, so that nothing which a client says is
  // passed over unseen; without those that are null.
  std::vector<const JsonValue::Member*> Unread() const;

  // Every name that was asked for so far, there or not: what the endpoint knows.
  const std::vector<std::string>& asked() const { return asked_; }

  // Notes a field that is left without effect: it is logged, and named in the report.
  void Pass(std::string_view name);
  const std::vector<std::string>& passed() const { return passed_; }

  void Fail(std::string_view name, std::string message, std::string code = "");
  bool ok() const { return !error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }
  // Takes over the error of a reader of a part, and what it passed.
  void Take(const Fields& part);

 private:
  const JsonValue* FindMember(std::string_view name) const;
  // The name by which the client has sent a field.
  std::string_view SentName(std::string_view name) const;

  const JsonValue& object_;
  const std::string prefix_;
  mutable std::vector<bool> read_;  // by member: somebody asked for it
  mutable std::vector<std::string> asked_;
  std::optional<Dialect> dialect_;
  std::vector<std::string> passed_;
  std::optional<ApiError> error_;
};

}  // namespace reprise::api
