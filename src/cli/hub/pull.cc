// SPDX-License-Identifier: Apache-2.0
// `reprise pull`: a model from the hub into the cache that all of the hub's tools share.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/hub/named_model.h"

namespace reprise::cli {

void DefinePull(Flags* flags) {
  struct Options {
    std::string name;
    FetchOptions fetch;
  };
  auto options = std::make_shared<Options>();
  options->fetch.update = true;
  flags->Add("NAME", &options->name,
             "ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO:FILE; a revision as in ORG/REPO@REVISION",
             {.required = true});
  flags->Add("--anyway", &options->fetch.anyway,
             "fetch a model even if it does not fit this machine");
  flags->Add("--retries", &options->fetch.retries,
             "maximum attempts after a failure, without progress between", {.min = 0, .max = 100});
  flags->Add("--retry-pause-ms", &options->fetch.retry_pause_ms,
             "milliseconds before the first of them; doubles with each", {.min = 1, .max = 60000});
  flags->SetAction([options]() -> Status {
    REPRISE_ASSIGN(const std::string path, FetchModel(options->name, options->fetch));
    std::printf("%s\n", path.c_str());
    return OkStatus();
  });
}

}  // namespace reprise::cli
