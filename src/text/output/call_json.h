// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise {

// Reads a tool call written as a JSON object, piece by piece:
//   {"name": "get_weather", "arguments": {"city": "Paris"}}
// "parameters" stands for "arguments", too. The arguments are kept as the model wrote them; those
// that were written as a string lose their quotes and escapes. What is inside them is not checked.
class CallJson {
 public:
  enum class State {
    kReading,
    kDone,    // the object is complete and has a name
    kBroken,  // this is not a call
  };

  // REQUIRES: state() == kReading.
  void Read(std::string_view text);
  State state() const { return state_; }
  // What came after the object, or from where it broke: the end of the last text read.
  const std::string& rest() const { return rest_; }

  // REQUIRES: state() == kDone.
  const std::string& name() const { return name_; }
  const std::string& arguments() const { return arguments_; }
  bool has_arguments() const { return seen_arguments_; }  // not left out

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
  enum class Role { kOther, kName, kArguments };

  static Role RoleOf(std::string_view key);
  bool Step(char c);        // false if c is not part of the object
  bool StepString(char c);  // inside a string; false when it has ended
  bool StartValue(char c);
  bool StepValue(char c);
  bool EndValue();
  bool EndObject();
  void Break();

  State state_ = State::kReading;
  At at_ = At::kObject;
  Role role_ = Role::kOther;
  bool escaped_ = false;  // the last character of a string was a backslash
  bool quoted_ = false;   // inside a string of a value
  bool seen_arguments_ = false;
  std::string key_;      // as written, without quotes
  std::string value_;    // of a name, a string of arguments, or a scalar
  std::string closers_;  // brackets of the value that are still open
  std::string name_;
  std::string arguments_;
  std::string rest_;
};

}  // namespace reprise
