// SPDX-License-Identifier: Apache-2.0
#include "api/fields/unsupported.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/log.h"

namespace reprise::api {
namespace {

constexpr char kUnsupported[] = "unsupported_value";
constexpr char kUnknown[] = "unknown_parameter";  // OpenAI's code for it
constexpr size_t kNameBytesMax = 64;              // of a name that errors and logs repeat
constexpr size_t kUnknownMax = 64;                // fields that are looked at one by one
constexpr size_t kLoggedMax = 1024;               // names that are remembered as logged
constexpr size_t kMistakesMax = 2;                // letters by which a name is misspelt
constexpr size_t kMistakableBytes = 5;            // shorter names have too many neighbours

// As JSON: the order of members and the spelling of numbers do not matter.
bool IsEqual(const JsonValue& a, const JsonValue& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_bool()) return a.as_bool() == b.as_bool();
  if (a.is_array()) {
    return std::ranges::equal(a.items(), b.items(), IsEqual);
  }
  if (!a.is_object()) return true;
  return a.members().size() == b.members().size() &&
         std::ranges::all_of(a.members(), [&](const JsonValue::Member& member) {
           const JsonValue* other = b.Find(member.key);
           return other != nullptr && IsEqual(member.value, *other);
         });
}

bool IsNeutral(const JsonValue& value, std::string_view neutral) {
  const auto list = JsonDocument::Parse("[" + std::string(neutral) + "]");
  CHECK(list.ok());
  return std::ranges::any_of(list->root().items(),
                             [&](const JsonValue& one) { return IsEqual(value, one); });
}

// As much of a name as may be repeated, and something where it is nothing.
std::string_view CutName(std::string_view name) {
  if (name.empty()) return "\"\"";
  if (name.size() <= kNameBytesMax) return name;
  size_t end = kNameBytesMax;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0u) == 0x80u) --end;
  return name.substr(0, end);
}

// Whether the names differ in at most kMistakesMax letters, put in, left out or changed.
bool IsNear(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > kMistakesMax || a.size() < kMistakableBytes) return false;
  std::vector<size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= b.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= a.size(); ++j) {
      const size_t changed = diagonal + (a[j - 1] == b[i - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back() <= kMistakesMax;
}

// The field that a client may have meant; empty: none.
std::string_view Misspelt(Dialect dialect, const Fields& fields, std::string_view name) {
  if (name.size() > kNameBytesMax) return {};
  const auto asked = std::ranges::find_if(
      fields.asked(), [name](const std::string& known) { return IsNear(name, known); });
  if (asked != fields.asked().end()) return *asked;
  const auto known = std::ranges::find_if(KnownFields(), [&](const KnownField& field) {
    return field.IsOf(dialect) && IsNear(name, field.name);
  });
  return known != KnownFields().end() ? known->name : std::string_view();
}

// True the first time a name is seen. When the memory for names is full, all count as seen.
bool IsNew(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.size() < kLoggedMax && seen.insert(name).second;
}

void LogPassed(const std::vector<std::string>& names) {
  if (names.empty() || !LogEnabled(LogLevel::kWarning)) return;
  std::vector<std::string> fresh;
  std::ranges::copy_if(names, std::back_inserter(fresh), IsNew);
  if (fresh.empty()) return;
  std::string line;
  JsonWriter json(&line);
  json.BeginObject().Member("event", "passed_fields").Key("fields").BeginArray();
  for (const std::string& name : fresh) json.String(name);
  json.EndArray().EndObject();
  Log(LogLevel::kWarning, line);
}

// A field that the table does not have. False if it is refused.
bool PassUnknown(Dialect dialect, const ServiceOptions& options, std::string_view name,
                 Fields* fields) {
  if (options.strict_fields || dialect == Dialect::kOwn) {
    fields->Fail(CutName(name), "is not a field of this endpoint", kUnknown);
  } else if (const std::string_view meant = Misspelt(dialect, *fields, name); !meant.empty()) {
    fields->Fail(CutName(name), fmt::format("is not a field; did you mean {}?", meant), kUnknown);
  } else {
    fields->Pass(CutName(name));
  }
  return fields->ok();
}

}  // namespace

void RefuseUnread(Dialect dialect, const ServiceOptions& options, Fields* fields) {
  using Kind = KnownField::Kind;
  if (!fields->ok()) return;
  size_t unknown = 0;
  for (const JsonValue::Member* member : fields->Unread()) {
    const std::string_view name = member->key;
    if (name == "model") continue;
    if (const KnownField* known = FindKnownField(dialect, name)) {
      if (known->kind == Kind::kHarmless || known->kind == Kind::kAlias) continue;
      if (IsNeutral(member->value, known->neutral)) continue;
      if (known->kind == Kind::kRefused || options.strict_fields) {
        return fields->Fail(name, std::string(known->text), kUnsupported);
      }
      fields->Pass(name);
    } else if (++unknown > kUnknownMax) {
      return fields->Fail(CutName(name), fmt::format("is unknown, like {} others", kUnknownMax),
                          kUnknown);
    } else if (!PassUnknown(dialect, options, name, fields)) {
      return;
    }
  }
  LogPassed(fields->passed());
}

void CheckPenaltyWindow(Fields* fields) {
  const JsonValue* window = fields->Find("repeat_last_n");
  const JsonValue* penalty = fields->Find("repeat_penalty");
  if (window == nullptr || penalty == nullptr) return;
  if (penalty->is_number() && penalty->as_double() == 1) return;
  if (window->is_int() && window->as_int() == -1) return;
  fields->Pass("repeat_last_n");
}

}  // namespace reprise::api
