// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "weights/format/gguf.h"

namespace reprise {

// A model in several GGUF files, as gguf-split writes it: "stem-00002-of-00005.gguf" has split.no 1
// (from 0), split.count 5 and split.tensors.count, the tensors of all parts together. The first
// part has the metadata of the model; the others need not have any.
//
// Invariants of a set that passed the two checks
//   1. Part i of n says that it is part i of n.
//   2. All promise the same number of tensors, or none do; that many they hold.
//   3. Architecture and name, where a part has them, are those of the first.
// Names of tensors are not compared: a tensor in two parts is found when they are put together.
inline constexpr int64_t kGgufPartsMax = 4096;

struct GgufPart {
  int64_t number = 1;    // 1 .. count
  int64_t count = 1;     // 1: the file is a whole model
  int64_t tensors = -1;  // of the model; -1: it is not said
};

// What a file says about itself.
Result<GgufPart> ReadGgufPart(const GgufFile& file);

// "x-00002-of-00005.gguf".
std::string GgufPartPath(const std::string& stem, int64_t number, int64_t count);
// What stands before "-00002-of-00005.gguf"; nothing if the path ends otherwise.
std::optional<std::string> GgufPartStem(const std::string& path, const GgufPart& part);

// Whether a file may be part `number` of `count` of the model that `first` begins.
Status CheckGgufPart(const GgufFile& file, int64_t number, int64_t count, const GgufFile& first);

// The parts hold what the first promises. REQUIRES: each of them passed CheckGgufPart.
Status CheckGgufTensorCount(std::span<const GgufFile* const> parts);

}  // namespace reprise
