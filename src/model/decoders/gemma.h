// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "model/config/decoder.h"
#include "model/family.h"

namespace reprise {

// What distinguishes the generations of Gemma.
struct GemmaVariant {
  std::string_view gguf_architecture;
  DecoderExpectations expected;
  // What config.json may leave out.
  std::string_view defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-6})";
  int wide_layers = 0;           // layers of the size whose scale is that of dim / heads
  double attention_softcap = 0;  // where a GGUF file does not say
  double logit_softcap = 0;
  bool qk_norm = false;
  bool whole_pictures = false;          // DenseTraits
  std::string_view window_rope_member;  // of rope_parameters; "": one regime for all layers
};

// A dense decoder with norms on both sides of its blocks, GeGLU and scaled embeddings.
Result<std::unique_ptr<FamilyModel>> MakeGemma(ConfigReader* reader, GemmaVariant variant,
                                               DType kv);

}  // namespace reprise
