// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template/python/budget.h"
#include "text/template/python/value.h"

namespace reprise::jinja {

// What the library functions share during one render.
struct Runtime {
  Runtime(const Limits& limits, const std::tm& time) : budget(limits), now(time) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    for (const Ref<Object>& object : kept) object->Clear();
  }

  // Takes a mutable object into the render's care: it lives until the end, then all are emptied,
  // whatever cycles they formed.
  Result<Value> Keep(Ref<Object> object);

  Budget budget;
  const std::tm now;
  std::vector<Ref<Object>> kept;
};

// The arguments of a call. The names live as long as the call, not longer.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
  Value spread;  // the dict of a **spread, whose keys the names view
};

// Takes the arguments of a call one by one in the order of the parameters, as Python binds them.
//
//   ArgumentReader read("indent", arguments);
//   const Value width = read.Optional("width", Value::Int(4));
//   REPRISE_TRY(read.Finish());
class ArgumentReader {
 public:
  ArgumentReader(const char* function, const Arguments& arguments)
      : function_(function), arguments_(arguments) {}

  Value Optional(std::string_view name, Value fallback);
  Value Required(std::string_view name);                    // a missing one fails in Finish
  bool OptionalFlag(std::string_view name, bool fallback);  // any value, by its truth
  int64_t OptionalInt(std::string_view name, int64_t fallback);
  Value OptionalString(std::string_view name, std::string_view fallback);
  Value StringOrNone(std::string_view name);  // None if it was not given
  Value RequiredString(std::string_view name);

  // Fails if an argument was missing, of the wrong type, unknown or one too many.
  Status Finish() const;

 private:
  void Fail(std::string message);
  Value CheckString(std::string_view name, Value value);

  const char* const function_;
  const Arguments& arguments_;
  size_t next_ = 0;
  size_t named_taken_ = 0;
  Status status_;
};

// A function of the library: filters and methods get their subject first, tests too.
using SubjectFunction = Result<Value> (*)(Runtime*, const Value& subject, const Arguments&);
using TestFunction = Result<bool> (*)(Runtime*, const Value& subject, const Arguments&);

SubjectFunction FindFilter(std::string_view name);  // null if there is none
TestFunction FindTest(std::string_view name);
Value FindGlobal(std::string_view name);  // missing if there is none

}  // namespace reprise::jinja
