// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

// A model on the hub, as people write it: "ORG/REPO", "ORG/REPO:Q4_K_M", "ORG/REPO:model.gguf",
// "ORG/REPO@REVISION:Q8_0". "hf:" or "hf://" may stand before it.
struct ModelName {
  std::string repo;               // "ORG/REPO"; old ones have no ORG
  std::string revision = "main";  // branch, tag or commit
  std::string wanted;             // a quantisation or a file; empty: what there is

  // Fails with one sentence unless every part is one that the hub gives out: names become paths.
  static Result<ModelName> Parse(std::string_view text);
  // Whether the text says that it names a model on the hub ("hf:...").
  static bool Claims(std::string_view text) { return text.starts_with("hf:"); }

  std::string ToString() const;  // without "hf:"
};

}  // namespace reprise::hub
