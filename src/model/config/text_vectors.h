// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

// How the rows behind the final norm become one vector for a text.
enum class Pooling : uint8_t {
  kNone,  // they do not
  kMean,  // their mean
  kLast,  // that of the last token
};

// The rows of a GGUF model that ranks.
inline constexpr char kRankTensor[] = "cls.output.weight";

// What a model made for vectors says about them.
struct TextVectors {
  Pooling pooling = Pooling::kNone;
  std::string why_not;  // a sentence, where the model is made for vectors that are not made here

  // Models that rank: the vector of query and document, times these rows, says how well the
  // document answers. One row: before a sigmoid; two: yes and no, before a softmax.
  std::vector<float> rank_rows;  // [count, dim]; empty: it does not rank
  std::string rank_prompt;       // with {query} and {document} where these go
};

// From "<architecture>.pooling_type" of a GGUF file, with cls.output.weight and
// tokenizer.chat_template.rerank where it ranks; from modules.json of a Hugging Face folder, as
// sentence-transformers writes it. `dim` is the model's. Fails with kDataLoss if a file is broken.
Result<TextVectors> ReadTextVectors(const Checkpoint& checkpoint, int64_t dim);

// Writes the pooling under the key that llama.cpp reads, too.
void PutPooling(Pooling pooling, std::string_view architecture, GgufWriter* out);

// "mean", "last"; kNone for another name.
Pooling FindPooling(std::string_view name);

}  // namespace reprise
