// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"

namespace reprise::cli {

// Models of an INI file as llama-server's --models-preset has it: a section for each model, [*] for
// all of them, keys as that server's options (`c`, `ctx-size`, LLAMA_ARG_CTX_SIZE), comments behind
// ';' or '#'. A section without a model is a name of the hub.
struct Presets {
  std::vector<std::pair<std::string, Flags::Settings>> models;  // with our names of options
  std::vector<std::string> without_effect;                      // "[name] n-gpu-layers"
};
Result<Presets> ParsePresets(std::string_view text);
Result<Presets> ReadPresets(const std::string& path);

}  // namespace reprise::cli
