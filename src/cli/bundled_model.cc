// SPDX-License-Identifier: Apache-2.0
#include "cli/bundled_model.h"

#include <filesystem>
#include <system_error>

#include "cli/hub/named_model.h"
#include "hub/names/model_name.h"

namespace reprise::cli {
namespace {

constexpr char kName[] = "reprise-tiny-q8_0.gguf";

}  // namespace

Result<std::string> FindModel(const std::string& path) {
  if (path.empty()) return FindBundledModel();
  if (hub::ModelName::Claims(path)) return FetchModel(path);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return NotFound("there is no model '" + path +
                  "': give a GGUF file, a Hugging Face folder, hf:ORG/REPO for one of the hub, or "
                  "nothing for the bundled model");
}

Result<std::string> FindBundledModel() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path();
  const fs::path candidates[] = {
      folder / kName,                               // unpacked somewhere
      folder / "models" / kName,                    //
      folder / ".." / ".." / "models" / kName,      // build/<preset>/reprise in the source tree
      folder / ".." / "share" / "reprise" / kName,  // installed
      fs::path("models") / kName,
  };
  for (const fs::path& candidate : candidates) {
    if (fs::is_regular_file(candidate, error)) {
      const fs::path clean = fs::canonical(candidate, error);
      return error ? candidate.string() : clean.string();
    }
  }
  return NotFound(std::string("the bundled model (") + kName +
                  ") is not installed; name a model: a GGUF file or a Hugging Face folder");
}

}  // namespace reprise::cli
