// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/op_context.h"
#include "picture/patches.h"
#include "picture/pixels.h"

namespace reprise {

// What a tower says about itself.
struct TowerCard {
  std::string family;
  std::string_view token;  // in vocabularies, what stands for a token of a picture
  PatchRules rules;
  bool in_line = false;  // SeenPicture::in_line
  int64_t dim = 0;       // of a token's vector: that of the decoder's stream
  size_t weight_bytes = 0;
  // Of what vectors depend on besides pixels: weights, parameters, numerics. 32 hex digits.
  std::string digest;
};

// What looks at a picture: a function from pixels to vectors, one for each of its tokens.
//
// The law: a picture's vectors depend on its pixels alone. It is looked at whole and by itself, in
// parts whose bits do not depend on where they are cut.
//
// Thread safety: as Model.
class VisionTower {
 public:
  // A picture under way.
  class Look {
   public:
    virtual ~Look() = default;
    // Computes a part: what a step of some hundred rows may take. True: that was the last. Fails
    // with kResourceExhausted if the device has no memory for it; the same part may be tried again.
    virtual Result<bool> Advance(const OpContext& context) = 0;
    // Fractions of the work that are done.
    virtual double done() const = 0;
    // [tokens, dim]. REQUIRES: it has ended.
    virtual DeviceBuffer TakeVectors() = 0;
  };

  virtual ~VisionTower() = default;
  const TowerCard& card() const { return card_; }
  // REQUIRES: the pixels have a size that the rules ask for (PatchedSize), and outlive the look.
  virtual Result<std::unique_ptr<Look>> Begin(const OpContext& context,
                                              const Pixels& pixels) const = 0;

 protected:
  TowerCard card_;
};

}  // namespace reprise
