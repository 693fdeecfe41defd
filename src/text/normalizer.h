// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/split/regex.h"
#include "text/unicode/chars_map.h"
#include "text/vocab/spec.h"

namespace reprise {

// Normalizer rewrites text before it is split: a chain of steps. Text that a step leaves alone
// (most text, for NFC) is not copied.
//
// Thread safety: immutable; each thread brings its own Scratch.
class Normalizer {
 public:
  struct Scratch {
    std::string text;
    std::string next;
    std::vector<Regex::Span> spans;
    Regex::ScratchPtr regex;
  };

  static Result<Normalizer> Make(const std::vector<NormalizeStep>& steps);

  // Returns `text` itself or a view of the scratch. Fails with kResourceExhausted if the result
  // would be out of proportion, or longer than Splitter::kTextBytesMax.
  Result<std::string_view> Apply(std::string_view text, Scratch* scratch) const;

 private:
  struct Step {
    NormalizeStep spec;
    std::unique_ptr<Regex> regex;
    std::unique_ptr<CharsMap> chars_map;
  };

  std::vector<Step> steps_;
};

}  // namespace reprise
