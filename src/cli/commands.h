// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/flags.h"

// One function a command, each in its own file: adds its options and its action.
namespace reprise::cli {

void DefineAudit(Flags* flags);
void DefineBench(Flags* flags);
void DefineConvert(Flags* flags);
void DefineDiff(Flags* flags);
void DefineDoctor(Flags* flags);
void DefineInspect(Flags* flags);
void DefineLogits(Flags* flags);
void DefineModels(Flags* flags);
void DefinePull(Flags* flags);
void DefineRun(Flags* flags);
void DefineServe(Flags* flags);
void DefineState(Flags* flags);
void DefineSynth(Flags* flags);

// Subcommands of `bench`: the host's time in a step, cold against warm by workload, a recorded
// trace, what was promised, lower tiers, tokenizers, and constraints.
void DefineAdaptersBench(Flags* flags);
void DefineBesideBench(Flags* flags);
void DefineHostBench(Flags* flags);
void DefineMachineBench(Flags* flags);
void DefineReuseBenches(Flags* bench);
void DefineTraceBench(Flags* flags);
void DefinePromisesBench(Flags* flags);
void DefineTiersBench(Flags* flags);
void DefineTokenizeBench(Flags* bench);
void DefineGrammarBench(Flags* bench);
void DefineSpeculateBench(Flags* flags);

}  // namespace reprise::cli
