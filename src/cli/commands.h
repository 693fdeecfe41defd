// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

// One function a command, each in its own file: adds options to `app` and returns what to run once
// they are parsed.
namespace reprise::cli {

using Action = std::function<Status()>;

// The part of `bench` that compares cold with warm: one action per workload.
struct SubAction {
  CLI::App* app;
  Action run;
};
std::vector<SubAction> DefineReuseBenches(CLI::App* bench);

Action DefineAudit(CLI::App* app);
Action DefineBench(CLI::App* app);
Action DefineConvert(CLI::App* app);
Action DefineInspect(CLI::App* app);
Action DefineLogits(CLI::App* app);
Action DefineRun(CLI::App* app);
Action DefineSynth(CLI::App* app);

}  // namespace reprise::cli
