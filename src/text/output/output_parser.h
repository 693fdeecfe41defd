// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/output/event.h"
#include "text/output/output_format.h"

namespace reprise {

// Turns the text of a reply, as it arrives, into what the APIs report: reasoning, content and tool
// calls. It reads byte by byte, so that how the text is cut cannot matter. The text is never lost:
// what looks like the beginning of a call but is none is content, or reasoning.
//
// A call is told as soon as its name and the beginning of its arguments are there, and its
// arguments as they come. From then on it stays a call: if the reply ends inside it, or what
// follows is not what the format says, its last event says that it is not complete. A call ends
// reasoning that is still open.
//
// Thread safety: none. Costs: linear in the text.
class OutputParser {
 public:
  // `tools`: those of the request, or null. Must outlive the parser.
  OutputParser(const OutputFormat& format, const JsonValue* tools);
  ~OutputParser();

  OutputEvents Feed(std::string_view text);
  OutputEvents Finish();  // the reply is over

  // Whether what comes next would be reasoning.
  bool thinking() const;

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

// A whole reply at once.
struct ParsedOutput {
  struct Call {
    std::string name;
    std::string id;         // if the model wrote one
    std::string arguments;  // a JSON object, if complete
    bool complete = false;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
};
ParsedOutput ParseOutput(const OutputFormat& format, const JsonValue* tools, std::string_view text);

}  // namespace reprise
