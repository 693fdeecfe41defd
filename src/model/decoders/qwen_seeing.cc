// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/qwen_seeing.h"

#include <iterator>

#include "model/config/rope_sections.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

// Folders list the layers of the tower that they come from.
int ReadPictureLayers(ConfigReader* reader) {
  constexpr IntRange kLayers{0, 1024};
  if (reader->gguf()) return int(reader->Int({"", "n_deepstack_layers"}, kLayers, 0));
  return int(std::ssize(
      reader->Ints({"vision_config.deepstack_visual_indexes", ""}, size_t(kLayers.max), kLayers)));
}

DenseTraits MakeSeeingTraits(ConfigReader* reader, std::string_view gguf_architecture,
                             DecoderConfig* config) {
  DenseTraits traits;
  traits.gguf_architecture = gguf_architecture;
  traits.qk_norm = true;
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for this family");
  }
  const std::vector<int64_t> sections = ReadRopeSections(reader, &config->rope);
  traits.picture_layers = ReadPictureLayers(reader);
  if (traits.picture_layers > config->layer_count) {
    reader->Refuse("more layers of the tower than of the model are joined (deepstack)");
  }
  traits.describe = [sections, layers = traits.picture_layers](const std::string& prefix,
                                                               GgufWriter* out) {
    out->PutArray<int32_t>(prefix + "rope.dimension_sections",
                           std::vector<int32_t>(sections.begin(), sections.end()));
    out->Put<uint32_t>(prefix + "n_deepstack_layers", uint32_t(layers));
  };
  return traits;
}

}  // namespace reprise
