// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <algorithm>

namespace reprise {

void Detokenizer::Append(int32_t id, std::string* out) {
  if (!options_.keep_special && tokenizer_.IsSpecial(id) &&
      (options_.shown == nullptr || !options_.shown->contains(id))) {
    return;
  }
  std::string_view bytes = tokenizer_.TokenBytes(id);
  if (options_.marked != nullptr && options_.marked->contains(id)) {
    stream_.Finish(out);
    *out += options_.mark;
  }
  if (at_start_) {
    at_start_ = false;
    switch (tokenizer_.decode_rule()) {
      case VocabSpec::Decode::kBytes:
        break;
      case VocabSpec::Decode::kStripOne:
        at_start_ = bytes.empty();
        if (bytes.starts_with(' ')) bytes.remove_prefix(1);
        break;
      case VocabSpec::Decode::kStripFirstToken: {
        std::string first(bytes);
        std::erase(first, ' ');
        stream_.Append(first, out);
        return;
      }
    }
  }
  stream_.Append(bytes, out);
}

void Detokenizer::Finish(std::string* out) {
  stream_.Finish(out);
  at_start_ = options_.at_start;
}

}  // namespace reprise
