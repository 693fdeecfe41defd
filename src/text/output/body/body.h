// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "text/output/formats.h"

namespace reprise {

// A call on its way.
struct CallDraft {
  std::string name;
  std::string id;         // as the model wrote it; may be empty
  std::string arguments;  // JSON, as far as it is known
  bool begun = false;     // this is a call and no other text, and its name is known
};

// Reads what stands between a call's markers, byte by byte, and makes the arguments JSON. What is
// known of them is in the draft as soon as it is certain.
class BodyReader {
 public:
  enum class Took {
    kMore,        // this byte belongs to the body; more follows
    kLast,        // this byte was its last
    kDoneBefore,  // the body ended before this byte
    kBroken,      // this is no such body; the byte was not taken
  };
  virtual ~BodyReader() = default;
  virtual Took Step(char c, CallDraft* call) = 0;
  // Whether the reader has taken the format's call_end, too.
  virtual bool takes_end() const { return false; }
};

// `tools`: those of the request, or null; must outlive the reader.
std::unique_ptr<BodyReader> MakeBodyReader(const CallFormat& format, const JsonValue* tools);

// Appends one byte of the text of a JSON string.
void AppendJsonByte(char c, std::string* out);

}  // namespace reprise
