// SPDX-License-Identifier: Apache-2.0
#include "text/output/call_xml.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/output/tag_search.h"
#include "text/output/tools.h"

namespace reprise {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr size_t kNameBytesMax = 256;

void AppendQuoted(std::string_view text, std::string* out) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  out->append(quoted, 1, quoted.size() - 2);
}

// Bytes at the end that are an unfinished UTF-8 sequence.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto lead = static_cast<unsigned char>(text[text.size() - back]);
    if (lead < 0x80) return 0;
    if (lead < 0xC0) continue;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

void CallXml::Read(std::string_view text) {
  pending_ += text;
  bool more = true;
  while (more && state_ == State::kReading) {
    more = at_ == At::kFunction     ? StepFunction()
           : at_ == At::kParameters ? StepParameters()
                                    : StepValue();
  }
}

// Each step takes something from pending_ and returns true, or needs more and returns false.
bool CallXml::StepFunction() {
  pending_.erase(0, BlanksAtStart(pending_));
  if (pending_.empty() || Begins(pending_, kFunction)) return false;
  const size_t end = pending_.find('>');
  if (!pending_.starts_with(kFunction) || std::min(end, pending_.size()) > kNameBytesMax) {
    state_ = State::kBroken;
    return false;
  }
  if (end == std::string::npos) return false;
  name_ = pending_.substr(kFunction.size(), end - kFunction.size());
  if (name_.empty()) {
    state_ = State::kBroken;
    return false;
  }
  pending_.erase(0, end + 1);
  arguments_ = "{";
  at_ = At::kParameters;
  return true;
}

bool CallXml::StepParameters() {
  pending_.erase(0, BlanksAtStart(pending_));
  if (pending_.empty() || Begins(pending_, kFunctionEnd) || Begins(pending_, kParameter)) {
    return false;
  }
  if (pending_.starts_with(kFunctionEnd)) {
    pending_.erase(0, kFunctionEnd.size());
    arguments_ += '}';
    state_ = State::kDone;
    return false;
  }
  const size_t end = pending_.find('>');
  if (!pending_.starts_with(kParameter) || std::min(end, pending_.size()) > kNameBytesMax) {
    state_ = State::kBroken;
    return false;
  }
  if (end == std::string::npos) return false;
  BeginValue(std::string_view(pending_).substr(kParameter.size(), end - kParameter.size()));
  pending_.erase(0, end + 1);
  at_ = At::kValue;
  return true;
}

void CallXml::BeginValue(std::string_view parameter) {
  if (!first_) arguments_ += ", ";
  first_ = false;
  AppendJsonString(parameter, &arguments_);
  arguments_ += ": ";
  string_ = IsString(parameter);
  if (string_) arguments_ += '"';
  value_.clear();
  value_begun_ = false;
}

bool CallXml::StepValue() {
  if (!value_begun_) {
    if (pending_.empty()) return false;
    if (pending_.front() == '\n') pending_.erase(0, 1);
    value_begun_ = true;
  }
  const size_t end = pending_.find(kParameterEnd);
  if (end != std::string::npos) {
    EndValue(std::string_view(pending_).substr(0, end));
    pending_.erase(0, end + kParameterEnd.size());
    at_ = At::kParameters;
    return true;
  }
  // The newline before the closing tag is not part of the value.
  size_t ready = pending_.size() - TagBegunAtEnd(pending_, kParameterEnd);
  if (ready > 0 && pending_[ready - 1] == '\n') --ready;
  ready -= UnfinishedBytes(std::string_view(pending_).substr(0, ready));
  AppendText(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return false;
}

void CallXml::AppendText(std::string_view text) {
  if (string_) {
    AppendQuoted(text, &arguments_);
  } else {
    value_ += text;
  }
}

void CallXml::EndValue(std::string_view rest) {
  if (rest.ends_with('\n')) rest.remove_suffix(1);
  AppendText(rest);
  if (string_) {
    arguments_ += '"';
    return;
  }
  const size_t blanks = BlanksAtStart(value_);
  std::string_view text = std::string_view(value_).substr(blanks);
  text.remove_suffix(BlanksAtEnd(text));
  if (text == "True") text = "true";
  if (text == "False") text = "false";
  if (text == "None") text = "null";
  if (JsonDocument::Parse(text).ok()) {
    arguments_ += text;
  } else {
    AppendJsonString(value_, &arguments_);
  }
}

// Whether a parameter takes nothing but strings, as far as the tools say.
bool CallXml::IsString(std::string_view parameter) const {
  const JsonValue* tool = FindTool(tools_, name_);
  if (tool == nullptr) return true;
  const JsonValue* schema = tool->Find("parameters");
  if (schema == nullptr) schema = tool->Find("input_schema");
  const JsonValue* properties = schema == nullptr ? nullptr : schema->Find("properties");
  const JsonValue* property = properties == nullptr ? nullptr : properties->Find(parameter);
  if (property == nullptr) return true;
  const JsonValue* type = property->Find("type");
  if (type == nullptr) return property->Find("anyOf") == nullptr;
  return type->is_string() && (type->as_string() == "string" || type->as_string() == "str");
}

}  // namespace reprise
