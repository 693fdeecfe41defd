// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "text/output/body/body.h"

namespace reprise {

// The arguments as a JSON object, passed on as they are. What is inside is not checked, except that
// brackets match.
class JsonBody : public BodyReader {
 public:
  Took Step(char c, CallDraft* call) override;

 private:
  std::string closers_;  // of the brackets that are open
  bool quoted_ = false;
  bool escaped_ = false;
};

// A call as a JSON object:
//   {"name": "get_weather", "arguments": {"city": "Paris"}}
// Other names of its members that models use are understood, too. The arguments are kept as the
// model wrote them; those that were written as a string lose their quotes and escapes.
// It has begun as a call once the name and the beginning of the arguments are there; a call without
// arguments, when the object ends.
class NamedJsonBody : public BodyReader {
 public:
  // `bare`: nothing marks the call, so that any object looks like one: its name must be that of a
  // tool, and the arguments must be there.
  NamedJsonBody(const JsonValue* tools, bool bare) : tools_(tools), bare_(bare) {}

  Took Step(char c, CallDraft* call) override;

 private:
  enum class At {
    kObject,    // before the opening brace
    kFirstKey,  // before a key or the closing brace
    kKey,       // before a key
    kInKey,     // inside its quotes
    kColon,
    kValue,  // before a value
    kInValue,
    kAfterValue,  // before a comma or the closing brace
  };
  enum class Role { kOther, kName, kArguments, kId };

  static Role RoleOf(std::string_view key);
  bool Take(char c);        // false if c is not part of the object
  bool TakeString(char c);  // inside a string; false when it has ended
  bool StartValue(char c);
  bool TakeValue(char c);
  bool EndValue();
  bool IsCall() const;

  const JsonValue* const tools_;
  const bool bare_;
  At at_ = At::kObject;
  Role role_ = Role::kOther;
  bool over_ = false;
  bool escaped_ = false;  // the last character of a string was a backslash
  bool quoted_ = false;   // inside a string of a value
  bool seen_arguments_ = false;
  bool object_ = false;  // the arguments are written as an object
  std::string key_;      // as written, without quotes
  std::string value_;    // of a name, a string of arguments, or a scalar
  std::string closers_;  // brackets of the value that are still open
  std::string name_;
  std::string id_;
  std::string arguments_;  // not yet in the draft
};

// {"get_weather": {"city": "Paris"}}
class KeyedJsonBody : public BodyReader {
 public:
  Took Step(char c, CallDraft* call) override;

 private:
  enum class At { kObject, kKey, kInKey, kColon, kArguments, kEnd };
  At at_ = At::kObject;
  JsonBody arguments_;
};

}  // namespace reprise
