// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace reprise {

// How models write tool calls and reasoning: two tables, one row a format, no code. The parser
// reads replies by them; whoever forces a model to call a tool writes by them.
//
// Markers stand here as templates write them. A reader takes any white space, or none, where a
// marker has some. An empty marker is one the format does not have.

// A tool call:
//   section_begin (call_begin [id id_end] name [id_begin id] arguments_begin BODY call_end)*
//   section_end
struct CallFormat {
  // What stands between arguments_begin and call_end.
  enum class Body {
    kJson,        // the arguments, a JSON object
    kNamedJson,   // a JSON object with the name, the arguments and perhaps an id in it
    kKeyedJson,   // {"get_weather": {"city": "Paris"}}: the only key is the name
    kParameters,  // a row of parameters between markers
    kElements,    // a row of elements <city>Paris</city>, nested for objects and arrays
    kPython,      // city='Paris', days=2
    kBareObject,  // {city:<|"|>Paris<|"|>,days:2}: keys without quotes
  };
  enum class Id {
    kNone,
    kBeforeName,  // call_begin ID id_end NAME
    kAfterName,   // NAME [id_begin ID] arguments_begin
    kIsName,      // functions.NAME:INDEX is both
    kInBody,      // a member of the JSON object
    kNameTwice,   // as kBeforeName, but the name itself stands there
    kNote,        // NAME and something that tells nothing, up to arguments_begin
  };
  // kParameters: begin KEY [type_begin TYPE] value_begin VALUE value_end. A newline at the end of
  // value_begin or the beginning of value_end is not part of the value.
  // kElements: begin KEY value_begin VALUE, then value_end KEY value_begin.
  struct Parameter {
    std::string_view begin = {};
    std::string_view value_begin = {};
    std::string_view value_end = {};
    std::string_view type_begin = {};   // then a type follows the key
    std::string_view type_string = {};  // the type of values that are text, not JSON
    std::string_view quote_begin = {};  // may stand around a value, as in XML's CDATA
    std::string_view quote_end = {};
  };

  std::string_view name;
  // A template has this format if all of these stand in it.
  std::array<std::string_view, 2> signs = {};
  // A template that shows no format at all has it if the vocabulary has this token.
  std::string_view token = {};

  std::string_view section_begin = {};
  std::string_view section_end = {};
  bool section_optional = false;  // models forget section_begin
  std::string_view call_begin = {};
  bool begun_in_prompt = false;  // the prompt ends with call_begin: the first call is without
  Id id = Id::kNone;
  std::string_view id_begin = {};
  std::string_view id_end = {};
  size_t id_letters = 0;  // templates refuse ids that are not just so many letters and digits
  std::string_view arguments_begin = {};
  Body body = Body::kJson;
  Parameter parameter = {};
  std::string_view quote = {};  // of strings in kBareObject
  std::string_view call_end = {};
  // The reply is nothing but calls, and nothing marks them: the name must be that of a tool.
  bool bare = false;
};

// All formats. Of those that a template has, the first one that fits a reply is taken.
std::span<const CallFormat> CallFormats();

// What a model thinks before it answers:  begin THOUGHTS end ANSWER
struct ReasoningFormat {
  std::string_view name;
  std::array<std::string_view, 2> signs = {};  // as in CallFormat
  std::string_view token = {};
  std::string_view begin = {};
  std::string_view end = {};
  std::string_view answer = {};  // what must follow `end` for the answer to begin, if anything
  bool anywhere = false;         // may begin at any place; otherwise only at the start of the reply
  std::array<std::string_view, 8> hidden = {};  // markers around the answer, not part of it
  std::string_view hidden_start = {};           // one that is only dropped at the very start
};

std::span<const ReasoningFormat> ReasoningFormats();

}  // namespace reprise
