// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace reprise {

// Reads a tool call written as Qwen3-Coder and Qwen3.5 write it, piece by piece:
//   <function=get_weather>
//   <parameter=city>
//   Paris
//   </parameter>
//   </function>
// The arguments become a JSON object. A parameter's value is a string unless the tool's schema says
// otherwise and the text is JSON.
class CallXml {
 public:
  enum class State { kReading, kDone, kBroken };

  // `tools`: the request's tools, for the types of parameters; may be null. Must outlive this.
  explicit CallXml(const JsonValue* tools) : tools_(tools) {}

  // REQUIRES: state() == kReading.
  void Read(std::string_view text);
  State state() const { return state_; }
  // What came after the call, or from where it broke: the end of the last text read.
  const std::string& rest() const { return pending_; }

  // REQUIRES: state() == kDone.
  const std::string& name() const { return name_; }
  const std::string& arguments() const { return arguments_; }

 private:
  enum class At { kFunction, kParameters, kValue };

  bool StepFunction();
  bool StepParameters();
  bool StepValue();
  void BeginValue(std::string_view parameter);
  void AppendText(std::string_view text);  // to a string value
  void EndValue(std::string_view rest);
  bool IsString(std::string_view parameter) const;

  const JsonValue* const tools_;
  State state_ = State::kReading;
  At at_ = At::kFunction;
  std::string pending_;  // not yet understood
  std::string name_;
  std::string arguments_;
  std::string value_;         // of a parameter that is not a string
  bool string_ = false;       // the type of the parameter being read
  bool first_ = true;         // no parameter yet
  bool value_begun_ = false;  // the newline before the value is gone
};

}  // namespace reprise
