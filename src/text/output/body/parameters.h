// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/output/body/body.h"
#include "text/output/body/literal.h"

namespace reprise {

// A row of parameters between markers (CallFormat::Parameter), up to the format's call_end. A value
// is text unless its type, or the tool's schema, says otherwise; text is passed on as it comes,
// other values when they are complete.
class ParametersBody : public BodyReader {
 public:
  ParametersBody(const CallFormat& format, const JsonValue* tools)
      : format_(format), tools_(tools) {}

  Took Step(char c, CallDraft* call) override;
  bool takes_end() const override { return true; }

 private:
  enum class At { kParameters, kKey, kType, kValueBegin, kValue };

  Took StepParameters(CallDraft* call);
  Took StepKey(CallDraft* call);
  Took StepType(CallDraft* call);
  void BeginValue(CallDraft* call);
  void StepValueBegin(CallDraft* call);
  void StepValue(CallDraft* call);
  void AppendText(std::string_view text, CallDraft* call);
  void EndValue(CallDraft* call);

  const CallFormat& format_;
  const JsonValue* const tools_;
  At at_ = At::kParameters;
  std::string pending_;  // not yet understood
  std::string key_;
  std::string type_;
  std::string value_;     // of a parameter that is not text
  std::string end_;       // what ends this value
  bool newline_ = false;  // the value began with the newline of its marker
  bool text_ = true;      // the value is text and passed on as it comes
  bool first_ = true;
};

// Nested elements (CallFormat::Body::kElements), up to the format's call_end.
class ElementsBody : public BodyReader {
 public:
  ElementsBody(const CallFormat& format, const JsonValue* tools) : format_(format), tools_(tools) {}

  Took Step(char c, CallDraft* call) override;
  bool takes_end() const override { return true; }

 private:
  // An element that is open. Its value so far: text, or the items or members inside.
  struct Element {
    std::string name;
    const JsonValue* schema = nullptr;
    std::string text;
    std::string inside;  // the elements in it, as JSON without the brackets
    bool array = false;  // they are items
  };

  Took Marked(CallDraft* call);
  bool Open(std::string_view name, CallDraft* call);
  bool Close(std::string_view name, CallDraft* call);
  const JsonValue* SchemaOf(const Element* parent, std::string_view name,
                            const CallDraft& call) const;

  const CallFormat& format_;
  const JsonValue* const tools_;
  std::vector<Element> open_;
  std::string pending_;
  bool first_ = true;
};

// city='Paris', days=2), up to the closing bracket.
class PythonBody : public BodyReader {
 public:
  Took Step(char c, CallDraft* call) override;
  bool takes_end() const override { return true; }

 private:
  enum class At { kKey, kInKey, kValue, kAfter };
  At at_ = At::kKey;
  std::string key_;
  std::optional<LiteralReader> value_;
  bool first_ = true;
};

// {city:<|"|>Paris<|"|>,days:2}
class BareObjectBody : public BodyReader {
 public:
  explicit BareObjectBody(std::string_view quote) : value_(quote) {}
  Took Step(char c, CallDraft* call) override;

 private:
  LiteralReader value_;
};

}  // namespace reprise
