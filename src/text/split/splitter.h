// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/split/regex.h"
#include "text/split/scanner.h"
#include "text/vocab/spec.h"

namespace reprise {

// Splitter is a tokenizer's pre-tokenizer: a chain of steps, each of which cuts the pieces of the
// one before it. Known patterns run as scanners, others as regular expressions.
//
// Thread safety: immutable; each thread brings its own Scratch.
class Splitter {
 public:
  struct Scratch {
    std::string_view text;      // the result: pieces of this text, which is the input or `buffer`
    std::vector<Piece> pieces;  // in order, none empty
    // Working memory.
    std::string buffer;
    std::string next_buffer;
    std::vector<Piece> next_pieces;
    std::vector<Regex::Span> spans;
    Regex::ScratchPtr regex;
  };

  static constexpr size_t kTextBytesMax = size_t{1} << 30;

  static Result<Splitter> Make(const std::vector<SplitStep>& steps);

  // Leaves the pieces in `scratch`; they point into `text` or into the scratch. `at_start` says
  // that `text` is the beginning of the input. Fails with kResourceExhausted if a step
  // makes the text too long. REQUIRES: text.size() <= kTextBytesMax.
  Status Split(std::string_view text, bool at_start, Scratch* scratch) const;

 private:
  struct Step {
    SplitStep spec;
    Scanner scanner = nullptr;
    std::unique_ptr<Regex> regex;
  };

  static Status Cut(const Step& step, Scratch* scratch);
  static Status Rewrite(const SplitStep& step, bool at_start, Scratch* scratch);
  static void RestoreBytes(Scratch* scratch);

  std::vector<Step> steps_;
  bool in_alphabet_ = false;  // the last steps work on alphabet text
};

}  // namespace reprise
