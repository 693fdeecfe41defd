// SPDX-License-Identifier: Apache-2.0
// What schemas let through and what they do not, byte by byte; what is refused is refused by name;
// and random values against their schemas, judged by a validator that is written down plainly here.
#include "grammar/schema/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/parse/automaton.h"
#include "grammar/schema/decimal.h"

namespace reprise::grammar {
namespace {

bool Accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Automaton automaton(grammar, size_t{32} << 20);
  PlaceId place = automaton.start();
  for (const char byte : text) place = automaton.Next(place, static_cast<uint8_t>(byte));
  EXPECT_FALSE(automaton.exhausted());
  return automaton.Accepts(place);
}

void Expect(std::string_view schema, std::vector<std::string_view> valid,
            std::vector<std::string_view> invalid) {
  const auto document = JsonDocument::Parse(schema);
  ASSERT_TRUE(document.ok()) << schema;
  auto compiled = CompileJsonSchema(document->root(), {});
  ASSERT_TRUE(compiled.ok()) << schema << ": " << compiled.status().message();
  const auto grammar = std::make_shared<const Grammar>(std::move(compiled).value());
  for (const auto text : valid) EXPECT_TRUE(Accepts(grammar, text)) << schema << " on " << text;
  for (const auto text : invalid) EXPECT_FALSE(Accepts(grammar, text)) << schema << " on " << text;
}

void ExpectRefused(std::string_view schema, std::string_view why) {
  const auto document = JsonDocument::Parse(schema);
  ASSERT_TRUE(document.ok()) << schema;
  const auto compiled = CompileJsonSchema(document->root(), {});
  ASSERT_FALSE(compiled.ok()) << schema;
  EXPECT_NE(compiled.status().message().find(why), std::string::npos)
      << schema << ": " << compiled.status().message();
}

TEST(JsonSchemaTest, Types) {
  Expect("{}", {"null", "true", "-1.5e3", "\"a\\u00e9\\n\"", "[1, {\"a\": []}]", "{}"},
         {"", "nul", "01", "1.", "\"\n\"", "\"\\ud800\"", "[1,]", "{\"a\"}", " 1"});
  Expect(R"({"type": "integer"})", {"0", "-12"}, {"1.5", "1e3", "\"1\""});
  Expect(R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1", "{}"});
  Expect(R"({"type": "string", "nullable": true})", {"\"\"", "null"}, {"1"});
  Expect(R"({"enum": ["a", 1, null, {"b": [2]}]})", {"\"a\"", "1", "1.0", "null", "{\"b\": [2]}"},
         {"\"b\"", "2", "{\"b\":[3]}", "{}", "{\"b\":[2],\"c\":1}"});
  Expect("true", {"1"}, {});
  ExpectRefused("false", "nothing can fulfil it");
}

TEST(JsonSchemaTest, Objects) {
  Expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
             "required": ["a"], "additionalProperties": false})",
         {R"({"a":1})", R"({"a": 1, "b": "x"})", "{\n  \"a\": 1\n}"},
         {"{}", R"({"b":"x"})", R"({"b":"x","a":1})", R"({"a":1,"a":1})", R"({"a":1,"c":1})",
          R"({"a":1,})", R"({"a":"1"})"});
  Expect(R"({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "null"}})",
         {R"({"a":1,"b":null})", R"({"ab":null})", "{}", "3"}, {R"({"a":null})", R"({"b":1})"});
  Expect(R"({"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
             "additionalProperties": false})",
         {R"({"x":1})", R"({"y":9})", R"({"xy":5})", R"({"y":"text"})"},
         {R"({"x":"a"})", R"({"xy":4})", R"({"y":4})", R"({"z":1})"});
  Expect(R"({"type": "object", "required": ["z"], "properties": {"a": {}}})",
         {R"({"a":1,"z":2,"k":3})", R"({"z":2})"}, {R"({"a":1})", "{}"});
  Expect(R"({"type": "object", "minProperties": 1, "maxProperties": 2})",
         {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  Expect(R"({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false,
             "minProperties": 2, "type": "object"})",
         {R"({"a":1,"c":2})", R"({"a":1,"b":2,"c":3})"}, {R"({"a":1})", "{}"});
  Expect(R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}})", {R"({"ab":1})"},
         {R"({"aB":1})"});
  Expect(R"({"properties": {"a\"\n": {"type": "null"}}, "additionalProperties": false})",
         {R"({"a\"\n":null})"}, {R"({"a":null})"});
  Expect(R"({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}})",
         {R"({"a":1,"b":2})", R"({"b":1})", "{}", R"({"c":1,"d":2})"},
         {R"({"a":1})", R"({"c":1})"});
}

TEST(JsonSchemaTest, Arrays) {
  Expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1, 2,3]", "[\n  1\n]"}, {"[]", "[1,2,3,4]", "[\"a\"]"});
  Expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}})",
         {"[]", "[1]", "[1,\"a\",null,null]"}, {"[\"a\"]", "[1,2]", "[1,\"a\",1]"});
  Expect(R"({"items": [{"type": "integer"}], "additionalItems": false})", {"[]", "[1]"},
         {"[1,2]", "[\"\"]"});
  Expect(R"({"type": "array", "contains": {"const": 7}})", {"[7]", "[1,7,\"a\"]"}, {"[]", "[1]"});
  Expect(R"({"type": "array", "contains": {"const": 7}, "minContains": 2, "maxContains": 2})",
         {"[7,7]", "[7,1,7]"}, {"[7]", "[7,7,7]"});
  Expect(R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"});
  ExpectRefused(R"({"type": "array", "uniqueItems": true})", "uniqueItems");
}

TEST(JsonSchemaTest, Strings) {
  Expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("éß€")", R"("a\n")", R"("\ud83d\ude00x")"}, {R"("a")", R"("abcd")"});
  Expect(R"({"type": "string", "pattern": "^[a-z]{2}\\d$"})", {R"("ab1")"},
         {R"("ab12")", R"("a1")"});
  Expect(R"({"type": "string", "pattern": "b"})", {R"("abc")"}, {R"("ac")"});
  Expect(R"({"type": "string", "pattern": "^a+$", "maxLength": 2})", {R"("aa")"},
         {R"("aaa")", R"("")"});
  Expect(R"({"not": {"pattern": "a"}, "type": "string"})", {R"("bcd")"},
         {R"("bad")", R"("b\u0061")"});
  Expect(R"({"not": {"minLength": 2}, "type": "string"})", {R"("")", R"("a")"}, {R"("ab")"});
  Expect(R"({"not": {"maxLength": 2}, "type": "string"})", {R"("abc")"}, {R"("ab")"});
  const std::pair<const char*, std::vector<std::vector<std::string_view>>> formats[] = {
      {"date",
       {{"2024-02-29", "1999-12-31", "2000-02-29"},
        {"2023-02-29", "1900-02-29", "2023-13-01", "2023-04-31", "0000-01-01"}}},
      {"date-time",
       {{"2024-01-01T00:00:00Z", "2024-01-01T23:59:59.123+05:30"},
        {"2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00"}}},
      {"time", {{"12:00:00Z"}, {"12:00Z", "25:00:00Z"}}},
      {"duration", {{"P1Y2M", "PT5S", "P3W", "P1DT1H"}, {"P", "PT", "1Y", "P1WT"}}},
      {"email", {{"a.b@c.de", "x+y@host"}, {"a", "@b", "a@", "a b@c"}}},
      {"uuid",
       {{"123e4567-e89b-12d3-a456-426614174000"},
        {"123e4567", "g23e4567-e89b-12d3-a456-426614174000"}}},
      {"ipv4", {{"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}}},
      {"ipv6",
       {{"::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "::"},
        {"1:2", ":::", "1::2::3", "12345::"}}},
      {"hostname", {{"example.com", "a-b"}, {"-a", "a..b", ""}}},
      {"uri",
       {{"https://a.b/c?d=e#f", "mailto:x@y", "urn:isbn:1"}, {"/relative", "a b", "http://[", ""}}},
      {"uri-reference", {{"/relative", "a/b#c", "http://x", ""}, {"a b", "%zz"}}},
      {"json-pointer", {{"", "/a/~0b"}, {"a", "/~2"}}},
  };
  for (const auto& [name, texts] : formats) {
    const std::string schema = std::string(R"({"type": "string", "format": ")") + name + "\"}";
    for (size_t i = 0; i < 2; ++i) {
      for (const std::string_view text : texts[i]) {
        const std::string quoted = "\"" + std::string(text) + "\"";
        i == 0 ? Expect(schema, {quoted}, {}) : Expect(schema, {}, {quoted});
      }
    }
  }
  Expect(R"({"type": "string", "format": "colour"})", {R"("anything")"}, {"1"});
  ExpectRefused(R"({"type": "string", "format": "regex"})", "format \"regex\"");
  ExpectRefused(R"({"type": "string", "pattern": "\\bx"})", "word boundary");
}

// Every bound against arithmetic, on both sides of it.
TEST(JsonSchemaTest, Numbers) {
  const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (int i = -1230; i <= 1230; i += 7) {
      const std::string sign = i < 0 ? "-" : "";
      const int size = std::abs(i);
      all.push_back(sign + std::to_string(size));
      all.push_back(sign + std::to_string(size / 10) + "." + std::to_string(size % 10));
      all.push_back(sign + std::to_string(size / 100) + "." + std::to_string(size / 10 % 10) +
                    std::to_string(size % 10));
    }
    for (int exponent = -12; exponent <= 12; ++exponent) {
      for (const char* digits : {"1", "4.99", "5", "5.0", "5.5", "7", "9.9", "-1.23", "-7", "-5"}) {
        all.push_back(digits + std::string("e") + std::to_string(exponent));
        if (exponent >= 0)
          all.push_back(digits + std::string("E+0") + std::to_string(exponent % 10));
      }
    }
    return all;
  }();
  for (const char* limit :
       {"0", "7", "-7", "12.3", "-12.3", "0.5", "-0.05", "99", "100", "101.1", "5e-7", "1e10"}) {
    const double bound = std::strtod(limit, nullptr);
    const auto document = JsonDocument::Parse(limit);
    RegexPool pool;
    const Decimal decimal = Decimal::Of(document->root());
    for (const Bound kind : {Bound::kAtLeast, Bound::kAbove, Bound::kAtMost, Bound::kBelow}) {
      const RegexId regex = CompareDecimal(pool, kind, decimal);
      for (const std::string& text : texts) {
        const double value = std::strtod(text.c_str(), nullptr);
        const bool expected = kind == Bound::kAtLeast  ? value >= bound
                              : kind == Bound::kAbove  ? value > bound
                              : kind == Bound::kAtMost ? value <= bound
                                                       : value < bound;
        RegexId at = regex;
        for (const char byte : text) at = pool.Derive(at, static_cast<uint8_t>(byte));
        ASSERT_EQ(pool.Nullable(at), expected) << text << " against " << limit;
      }
    }
  }
  Expect(R"({"type": "integer", "minimum": 10, "exclusiveMaximum": 1000, "multipleOf": 5})",
         {"10", "15", "995"}, {"5", "1000", "12", "-10", "10.5"});
  Expect(R"({"type": "number", "multipleOf": 0.01, "maximum": 1})", {"0.25", "1", "-3.10"},
         {"0.255", "1.01"});
  Expect(R"({"minimum": 3, "exclusiveMinimum": true})", {"3.1", "\"a\""}, {"3", "3.0"});
  Expect(R"({"not": {"const": 5}, "type": "number"})", {"4", "5.5"}, {"5", "5.0", "5e0", "50e-1"});
  Expect(R"({"minimum": 0, "maximum": 1})", {"1e-06", "9.99E-1", "1e0", "0.5"},
         {"1.1e0", "1e+01", "-1e-06", "10e-2", "0.1e1", "1e-100"});
  ExpectRefused(R"({"multipleOf": 1.234567891})", "multipleOf");
  ExpectRefused(R"({"type": "integer", "minimum": 3, "maximum": 2})", "nothing can fulfil it");
  ExpectRefused(R"({"type": "integer", "minimum": 11, "maximum": 12, "multipleOf": 7})", "nothing");
}

// What a document's draft does not know says nothing.
TEST(JsonSchemaTest, Drafts) {
  const auto draft = [](std::string_view name, std::string_view rest) {
    return R"({"$schema": "http://json-schema.org/)" + std::string(name) + R"(/schema#", )" +
           std::string(rest) + "}";
  };
  const std::string beside =
      R"("$ref": "#/definitions/a", "maximum": 3, "definitions": {"a": {"type": "integer"}})";
  for (const char* old : {"draft-04", "draft-06", "draft-07"}) {
    Expect(draft(old, beside), {"3", "4"}, {"\"a\""});
    Expect(draft(old, R"("items": {"$ref": "#/definitions/a", "maximum": 3},
                         "definitions": {"a": {"type": "integer"}})"),
           {"[4]"}, {"[\"a\"]"});
  }
  Expect(draft("draft/2019-09", beside), {"3"}, {"4"});
  Expect("{" + beside + "}", {"3"}, {"4"});
  const std::string condition = R"("if": {"minimum": 3}, "then": {"maximum": 5})";
  Expect(draft("draft-04", condition), {"6"}, {});
  Expect(draft("draft-06", condition), {"6"}, {});
  Expect(draft("draft-07", condition), {"5", "2"}, {"6"});
  Expect(draft("draft-04", R"("const": 1)"), {"2"}, {});
  Expect(draft("draft-06", R"("const": 1)"), {"1"}, {"2"});
  Expect(draft("draft-07", R"("unevaluatedProperties": false)"), {R"({"a":1})"}, {});
  ExpectRefused(draft("draft/2019-09", R"("unevaluatedProperties": false)"), "unevaluated");
}

// Whether a union's parts are empty is asked along a chain that leads back to where it began.
TEST(JsonSchemaTest, AlternativesThatContainEachOther) {
  Expect(R"({"$ref": "#/$defs/any", "$defs": {
             "any": {"anyOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/leaf"}]},
             "node": {"type": "object", "required": ["c"], "additionalProperties": false,
                      "properties": {"c": {"type": "array", "minItems": 1,
                                           "items": {"$ref": "#/$defs/any"}}}},
             "leaf": {"type": "object", "required": ["v"], "additionalProperties": false,
                      "properties": {"v": {"type": "null"}}}}})",
         {R"({"v":null})", R"({"c":[{"v":null},{"c":[{"v":null}]}]})"}, {R"({"c":[]})", "{}"});
}

TEST(JsonSchemaTest, Combinations) {
  Expect(R"({"allOf": [{"type": "integer"}, {"minimum": 3}], "maximum": 5})", {"3", "5"},
         {"2", "6", "4.5"});
  Expect(R"({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]})",
         {"\"x\"", R"({"a":1})"}, {"1", "{}"});
  Expect(
      R"({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
             "type": "object"})",
      {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}", R"({"c":1})"});
  Expect(R"({"oneOf": [{"minimum": 5}, {"maximum": 7}], "type": "integer"})", {"4", "8"},
         {"5", "6", "7"});
  Expect(R"({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})"}, {"{}", R"({"a":1,"b":1})"});
  Expect(
      R"({"oneOf": [{"properties": {"k": {"const": "x"}, "v": {"type": "integer"}},
             "required": ["k"]},
                       {"properties": {"k": {"const": "y"}, "v": {"type": "string"}},
             "required": ["k"]}],
             "type": "object"})",
      {R"({"k":"x","v":1})", R"({"k":"y","v":"s"})"}, {R"({"k":"x","v":"s"})", R"({"v":1})"});
  Expect(
      R"({"oneOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"],
             "additionalProperties": false},
                       {"type": "object", "properties": {"a": {}, "c": {}}, "required": ["a"],
             "additionalProperties": false}]})",
      {R"({"a":1,"b":2})", R"({"a":1,"c":2})"}, {R"({"a":1})", R"({"a":1,"b":2,"c":3})"});
  Expect(
      R"({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["a"]},
             "else": {"required": ["b"]}, "type": "object"})",
      {R"({"k":1,"a":0})", R"({"k":2,"b":0})", R"({"b":0})"},
      {R"({"k":1,"b":0})", R"({"k":2,"a":0})"});
  Expect(R"({"not": {"type": ["string", "integer"]}})", {"1.5", "null", "{}"},
         {"\"a\"", "1", "2.0"});
  Expect(R"({"not": {"required": ["a"]}, "type": "object"})", {"{}", R"({"b":1})"}, {R"({"a":1})"});
  Expect(R"({"not": {"enum": ["a", 1]}})", {"\"b\"", "2", "{}"}, {"\"a\"", "1", "1.0"});
  Expect(R"({"not": {"anyOf": [{"type": "string"}, {"minimum": 3}]}})", {"2"},
         {"null", "3", "\"a\""});
  Expect(R"({"not": {"items": {"type": "integer"}}, "type": "array"})", {"[1,\"a\"]"},
         {"[]", "[1]"});
  Expect(R"({"not": {"additionalProperties": false, "properties": {"a": {}}}, "type": "object"})",
         {R"({"b":1})", R"({"a":1,"b":1})"}, {"{}", R"({"a":1})"});
}

TEST(JsonSchemaTest, References) {
  Expect(R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
             "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"},
             {"type": "null"}]}},
             "required": ["v", "next"], "additionalProperties": false}}})",
         {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
         {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
  Expect(
      R"({"$id": "http://x/root.json", "properties": {"a": {"$ref": "#it"},
             "b": {"$ref": "part.json"},
             "c": {"$ref": "http://x/root.json#/definitions/p~1q"}}, "definitions": {
             "i": {"$anchor": "it", "type": "integer"}, "p/q": {"$id": "part.json",
             "type": "null"}}})",
      {R"({"a":1,"b":null,"c":null})"}, {R"({"a":null})", R"({"b":1})", R"({"c":1})"});
  // "~01" is "~1", not "/".
  Expect(R"({"$ref": "#/$defs/a~01b", "$defs": {"a~1b": {"type": "null"}, "a/b": {"const": 1}}})",
         {"null"}, {"1"});
  ExpectRefused(R"({"$ref": "http://elsewhere/x.json"})", "http://elsewhere/x.json");
  ExpectRefused(R"({"$ref": "#"})", "leads back to itself");
  ExpectRefused(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"})",
                "nothing can fulfil it");
}

TEST(JsonSchemaTest, RefusesByName) {
  ExpectRefused(R"({"unevaluatedProperties": false})", "unevaluatedProperties");
  ExpectRefused(R"({"$dynamicRef": "#x"})", "$dynamicRef");
  ExpectRefused(R"({"type": "sting"})", "sting");
  ExpectRefused(R"({"type": "object", "minProperties": 3})", "minProperties");
  ExpectRefused(R"({"maxItems": 100000000})", "items");
  ExpectRefused(R"({"type": "array", "uniqueItems": true})", "uniqueItems");
  ExpectRefused(R"({"type": "array", "uniqueItems": true, "maxItems": 2})", "uniqueItems");
  ExpectRefused(R"({"properties": []})", "properties");
  ExpectRefused("[]", "object or a boolean");
}

TEST(JsonSchemaTest, PropertiesAreInTheOrderOfTheDocument) {
  Expect(
      R"({"allOf": [{"properties": {"b": {}}}], "properties": {"a": {}}, "required": ["c", "a"],
             "type": "object"})",
      {R"({"b":1,"a":2,"c":3})"}, {R"({"a":2,"b":1,"c":3})", R"({"c":3,"b":1,"a":2})"});
}

// Deep recursion, alternatives that multiply, long patterns, huge counts: an answer in time, within
// No number is larger, or smaller, than a double can hold: readers refuse those, or take them for
// infinite.
TEST(JsonSchemaTest, NumbersThatCanBeRead) {
  Expect(R"({"type": "number"})",
         {"1e5", "-12.5E+99", "0.5e-99", "9.9e307", "1e-323", "1.7976931348623157e+308"},
         {"1e400", "12e300", "1e-400", "2e308", "72214.62E414", "1e", "1e+"});
}

// the budget.
TEST(JsonSchemaTest, HostileSchemas) {
  std::vector<std::string> schemas;
  std::string deep = "{}";
  for (int i = 0; i < 50; ++i) deep = R"({"not": )" + deep + "}";
  schemas.push_back(deep);
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    product += (i > 0 ? "," : "") +
               (R"({"anyOf": [{"required": ["a)" + n + R"("]}, {"required": ["b)" + n + "\"]}]}");
  }
  schemas.push_back(product + "]}");
  schemas.push_back(R"({"pattern": ")" + std::string(60'000, 'a') + "\"}");
  schemas.push_back(R"({"pattern": "(((a{1,1000}){1,1000}){1,1000})*b"})");
  schemas.push_back(
      R"({"allOf": [{"pattern": ".*a.{500}"}, {"pattern": ".*b.{499}"},
             {"not": {"pattern": "c.{300}"}}]})");
  schemas.push_back(R"({"type": "array", "minItems": 4000000000})");
  schemas.push_back(R"({"type": "string", "minLength": 1000000000})");
  schemas.push_back(
      R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"},
             {"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}})");
  std::string many = R"({"oneOf": [)";
  for (int i = 0; i < 60; ++i)
    many += (i > 0 ? "," : "") + (R"({"minLength": )" + std::to_string(i) +
                                  R"(, "properties": {"p)" + std::to_string(i) + R"(": {}}})");
  schemas.push_back(many + "]}");
  for (const std::string& schema : schemas) {
    const auto document = JsonDocument::Parse(schema);
    ASSERT_TRUE(document.ok()) << schema.substr(0, 60);
    const auto compiled = CompileJsonSchema(document->root(), {});
    if (!compiled.ok()) continue;
    EXPECT_LT(compiled->bytes(), size_t{64} << 20) << schema.substr(0, 60);
  }
}

}  // namespace
}  // namespace reprise::grammar
