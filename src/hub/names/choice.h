// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/names/listing.h"

namespace reprise::hub {

// One model among the files of a repository: a GGUF file or all its parts, or a folder of
// safetensors with its texts.
struct ModelFiles {
  std::string label;           // how it is asked for: "Q4_K_M", or a file name; empty: the folder
  std::string entry;           // what is opened: a path of the repository; empty: its folder
  std::vector<HubFile> files;  // all that belongs to it
  bool complete = true;        // no part is missing in the listing

  uint64_t bytes() const;
};

// What a repository offers. Companions (mmproj*, mtp-*, importance matrices) are no models.
struct Offer {
  std::vector<ModelFiles> models;   // GGUF models by size; the folder, if there is one, first
  std::vector<HubFile> companions;  // GGUF files that go with a model: mmproj*, mtp-*
  bool other_weights = false;       // weights in formats that are not read (PyTorch's .bin)
};
Offer FindModels(const std::vector<HubFile>& files);

// The quantisation in a file's name, in upper case: "Q4_K_M", "UD-IQ2_XXS", "BF16"; empty: none.
std::string FindQuantisation(std::string_view path);

// The model that `wanted` names: a quantisation (in any case), or a file by its path or name, with
// or without ".gguf". Empty: the folder, or the only model. Fails with one sentence that has the
// choices.
Result<ModelFiles> Choose(const Offer& offer, const std::string& wanted);

}  // namespace reprise::hub
