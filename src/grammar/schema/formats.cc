// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema/formats.h"

namespace reprise::grammar {
namespace {

// RFC 3339; the 29th of February only where there is one, no year 0, no leap seconds.
#define REPRISE_DATE                                                                           \
  "(?:(?!0000)[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-" \
  "9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])" \
  "|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define REPRISE_TIME                                                                    \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3" \
  "]):[0-5][0-9])"
// RFC 1123: at most 63 characters a label, no hyphen at its ends.
#define REPRISE_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define REPRISE_HOST REPRISE_LABEL "(?:\\." REPRISE_LABEL ")*"
#define REPRISE_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define REPRISE_IPV4 REPRISE_OCTET "(?:\\." REPRISE_OCTET "){3}"
#define REPRISE_H16 "[0-9A-Fa-f]{1,4}"
#define REPRISE_LS32 "(?:" REPRISE_H16 ":" REPRISE_H16 "|" REPRISE_IPV4 ")"
// RFC 4291 in the form of RFC 3986.
#define REPRISE_IPV6                                                                     \
  "(?:(?:" REPRISE_H16 ":){6}" REPRISE_LS32 "|::(?:" REPRISE_H16 ":){5}" REPRISE_LS32    \
  "|(?:" REPRISE_H16 ")?::(?:" REPRISE_H16 ":){4}" REPRISE_LS32 "|(?:(?:" REPRISE_H16    \
  ":){0,1}" REPRISE_H16 ")?::(?:" REPRISE_H16 ":){3}" REPRISE_LS32 "|(?:(?:" REPRISE_H16 \
  ":){0,2}" REPRISE_H16 ")?::(?:" REPRISE_H16 ":){2}" REPRISE_LS32 "|(?:(?:" REPRISE_H16 \
  ":){0,3}" REPRISE_H16 ")?::" REPRISE_H16 ":" REPRISE_LS32 "|(?:(?:" REPRISE_H16        \
  ":){0,4}" REPRISE_H16 ")?::" REPRISE_LS32 "|(?:(?:" REPRISE_H16 ":){0,5}" REPRISE_H16  \
  ")?::" REPRISE_H16 "|(?:(?:" REPRISE_H16 ":){0,6}" REPRISE_H16 ")?::)"
// RFC 3986; in IRIs (RFC 3987) everything above ASCII counts as unreserved.
#define REPRISE_CHARS(more) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
#define REPRISE_NO_COLON(more) "(?:[A-Za-z0-9._~!$&'()*+,;=@" more "-]|%[0-9A-Fa-f]{2})"
#define REPRISE_AUTHORITY(more)                                                       \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|%[0-9A-Fa-f]{2})*@)?(?:\\[" REPRISE_IPV6 \
  "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
#define REPRISE_TAIL(more) \
  "(?:\\?(?:" REPRISE_CHARS(more "/?") ")*)?(?:#(?:" REPRISE_CHARS(more "/?") ")*)?"
#define REPRISE_ABSOLUTE_PATH(more) "/(?:" REPRISE_CHARS(more) "+(?:/" REPRISE_CHARS(more) "*)*)?"
#define REPRISE_URI(more) \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" REPRISE_AUTHORITY(more) "(?:/" REPRISE_CHARS(more)          \
  "*)*|" REPRISE_ABSOLUTE_PATH(more) "|" REPRISE_CHARS(more) "+(?:/" REPRISE_CHARS(more)      \
  "*)*|)" REPRISE_TAIL(more)
#define REPRISE_RELATIVE(more)                                                             \
  "(?://" REPRISE_AUTHORITY(more) "(?:/" REPRISE_CHARS(more) "*)*|" REPRISE_ABSOLUTE_PATH( \
      more) "|" REPRISE_NO_COLON(more) "+(?:/" REPRISE_CHARS(more) "*)*|)" REPRISE_TAIL(more)
#define REPRISE_ABOVE_ASCII \
  "\\u{a0}-\\u{d7ff}\\u{f900}-\\u{fdcf}\\u{fdf0}-\\u{ffef}\\u{10000}-\\u{1fffd}"
#define REPRISE_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

struct Row {
  std::string_view name;
  StringFormat::Kind kind;
  std::string_view pattern = {};
};

constexpr auto kPattern = StringFormat::Kind::kPattern;
constexpr auto kRefused = StringFormat::Kind::kRefused;

constexpr Row kRows[] = {
    {"date-time", kPattern, REPRISE_DATE "T" REPRISE_TIME},
    {"date", kPattern, REPRISE_DATE},
    {"time", kPattern, REPRISE_TIME},
    {"duration", kPattern,
     "P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]"
     "+M)?(?:[0-9]+S)?)?)"},
    {"email", kPattern, REPRISE_ATOM "(?:\\." REPRISE_ATOM ")*@" REPRISE_HOST},
    {"hostname", kPattern, "(?=.{1,253}$)" REPRISE_HOST},
    {"ipv4", kPattern, REPRISE_IPV4},
    {"ipv6", kPattern, REPRISE_IPV6},
    {"uuid", kPattern, "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
    {"uri", kPattern, REPRISE_URI("")},
    {"uri-reference", kPattern, "(?:" REPRISE_URI("") "|" REPRISE_RELATIVE("") ")"},
    {"iri", kPattern, REPRISE_URI(REPRISE_ABOVE_ASCII)},
    {"iri-reference", kPattern,
     "(?:" REPRISE_URI(REPRISE_ABOVE_ASCII) "|" REPRISE_RELATIVE(REPRISE_ABOVE_ASCII) ")"},
    {"json-pointer", kPattern, "(?:/(?:[^~/]|~[01])*)*"},
    {"relative-json-pointer", kPattern, "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
    {"uri-template", kPattern,
     "(?:[^\\x00-\\x20\"'<>\\\\^`{|}%]|%[0-9A-Fa-f]{2}|\\{[A-Za-z0-9_.,:*+#/;?&%-]+\\})*"},
    {"idn-email", kRefused},
    {"idn-hostname", kRefused},
    {"regex", kRefused},
};

}  // namespace

StringFormat FindFormat(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return {row.kind, row.pattern};
  }
  return {};
}

}  // namespace reprise::grammar
