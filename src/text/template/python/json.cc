// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

// Appends a JSON string as Python writes it.
void AppendQuoted(std::string_view text, bool ensure_ascii, std::string* out) {
  const auto escape = [&](uint32_t unit) {
    char code[16];
    std::snprintf(code, sizeof(code), "\\u%04x", unit);
    *out += code;
  };
  *out += '"';
  const bool plain = std::all_of(text.begin(), text.end(), [&](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' &&
           !(ensure_ascii && (c == 0x7F || (c & 0x80) != 0));
  });
  if (plain) {
    *out += text;
    *out += '"';
    return;
  }
  CodePoints points(text);
  uint32_t code = 0;
  for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
    switch (code) {
      case '"':
        *out += "\\\"";
        continue;
      case '\\':
        *out += "\\\\";
        continue;
      case '\n':
        *out += "\\n";
        continue;
      case '\r':
        *out += "\\r";
        continue;
      case '\t':
        *out += "\\t";
        continue;
      case '\f':
        *out += "\\f";
        continue;
      case '\b':
        *out += "\\b";
        continue;
      default:
        break;
    }
    if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
      escape(code);
    } else if (ensure_ascii && code >= 0x10000) {
      escape(0xD800 + ((code - 0x10000) >> 10));
      escape(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      *out += text.substr(begin, points.offset() - begin);
    }
  }
  *out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Budget* budget, const JsonStyle& style)
      : style_(style), budget_(budget), out_(budget) {}

  Status Write(const Value& value) {
    switch (value.kind()) {
      case Value::Kind::kNone:
        return out_.Append("null");
      case Value::Kind::kBool:
        return out_.Append(value.as_bool() ? "true" : "false");
      case Value::Kind::kInt:
        return out_.Append(std::to_string(value.as_int()));
      case Value::Kind::kFloat:
        return out_.Append(Number(value));
      case Value::Kind::kString:
        return WriteString(value);
      case Value::Kind::kDict:
        return WriteDict(value.dict().pairs());
      case Value::Kind::kSequence:
        if (value.is_list() || value.is_tuple()) return WriteList(value.items());
        break;
      default:
        break;
    }
    return TypeError("Object of type " + TypeName(value) + " is not JSON serializable");
  }

  TracedText Take() { return out_.Take(); }

 private:
  static std::string Number(const Value& value) {
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return ReprFloat(value);
  }

  Status WriteString(const Value& text) {
    std::string quoted;
    AppendQuoted(text.as_string(), style_.ensure_ascii, &quoted);
    return out_.Append(quoted, text.origin());
  }

  Status NewLine() {
    if (!style_.indent) return OkStatus();
    REPRISE_TRY(out_.Append("\n"));
    for (int i = 0; i < level_; ++i) REPRISE_TRY(out_.Append(*style_.indent, style_.origin));
    return OkStatus();
  }

  Status WriteList(const Value::Items& items) {
    if (items.empty()) return out_.Append("[]");
    REPRISE_TRY(out_.Append("["));
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) REPRISE_TRY(out_.Append(style_.item_separator, style_.origin));
      REPRISE_TRY(NewLine());
      REPRISE_TRY(Write(items[i]));
    }
    --level_;
    REPRISE_TRY(NewLine());
    return out_.Append("]");
  }

  Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::kString:
        return WriteString(key);
      case Value::Kind::kNone:
        return out_.Append("\"null\"");
      case Value::Kind::kBool:
        return out_.Append(key.as_bool() ? "\"true\"" : "\"false\"");
      case Value::Kind::kInt:
        return out_.Append("\"" + std::to_string(key.as_int()) + "\"");
      case Value::Kind::kFloat:
        return out_.Append("\"" + Number(key) + "\"");
      default:
        return TypeError("keys must be str, int, float, bool or None, not " + TypeName(key));
    }
  }

  Status WriteDict(const Value::Pairs& pairs) {
    if (pairs.empty()) return out_.Append("{}");
    Value::Pairs sorted;
    if (style_.sort_keys) REPRISE_TRY(Sort(pairs, &sorted));
    REPRISE_TRY(out_.Append("{"));
    ++level_;
    bool first = true;
    for (const auto& [key, value] : style_.sort_keys ? sorted : pairs) {
      if (!first) REPRISE_TRY(out_.Append(style_.item_separator, style_.origin));
      first = false;
      REPRISE_TRY(NewLine());
      REPRISE_TRY(WriteKey(key));
      REPRISE_TRY(out_.Append(style_.key_separator, style_.origin));
      REPRISE_TRY(Write(value));
    }
    --level_;
    REPRISE_TRY(NewLine());
    return out_.Append("}");
  }

  Status Sort(const Value::Pairs& pairs, Value::Pairs* sorted) {
    REPRISE_TRY(budget_->Allocate(pairs.size() * sizeof(Value) * 2));
    *sorted = pairs;
    Status status;
    std::stable_sort(sorted->begin(), sorted->end(), [&](const auto& a, const auto& b) {
      const Result<int> order = Order(a.first, b.first);
      if (!order.ok() && status.ok()) status = order.status();
      return order.ok() && *order < 0;
    });
    return status;
  }

  const JsonStyle& style_;
  Budget* const budget_;
  PaidText out_;
  int level_ = 0;
};

// A number keeps its spelling where Python would spell it in another way.
Value Number(const JsonValue& json) {
  const bool usual = Repr(json.as_double()) == json.spelling();
  return usual ? Value::Float(json.as_double()) : Value::Spelled(json.as_double(), json.spelling());
}

Value Convert(const JsonValue& json, bool copy) {
  const auto text = [&](std::string_view s) {
    return copy ? Value::String(std::string(s), Origin::kData) : Value::View(s, Origin::kData);
  };
  switch (json.kind()) {
    case JsonValue::Kind::kNull:
      return Value::None();
    case JsonValue::Kind::kBool:
      return Value::Bool(json.as_bool());
    case JsonValue::Kind::kInt:
      return Value::Int(json.as_int());
    case JsonValue::Kind::kDouble:
      return Number(json);
    case JsonValue::Kind::kString:
      return text(json.as_string());
    case JsonValue::Kind::kArray: {
      Value::Items items;
      items.reserve(json.items().size());
      for (const JsonValue& item : json.items()) items.push_back(Convert(item, copy));
      return Value::List(std::move(items));
    }
    case JsonValue::Kind::kObject: {
      Value::Pairs pairs;
      pairs.reserve(json.members().size());
      for (const auto& [key, value] : json.members()) {
        pairs.emplace_back(text(key), Convert(value, copy));
      }
      return Value::OfPairs(std::move(pairs));
    }
  }
  return Value::None();
}

}  // namespace

Result<TracedText> ToJson(Budget* budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  REPRISE_TRY(writer.Write(value));
  return writer.Take();
}

Value FromJson(const JsonValue& json) { return Convert(json, false); }

Result<Value> ParseJson(Budget* budget, std::string_view text) {
  constexpr size_t kBytesPerTextByte = 40;  // of the document and the value, at worst
  REPRISE_TRY(budget->AllocateProduct(text.size(), kBytesPerTextByte));
  REPRISE_ASSIGN(const JsonDocument document, JsonDocument::Parse(text));
  return Convert(document.root(), true);
}

}  // namespace reprise::jinja
